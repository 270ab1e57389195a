"""Linkerd's identity service, as far as a proxy needs it to open its ports: it certifies whatever it is asked for.

A process of its own, so that it is in the network of the test: ``python -m tests.support.linkerd_identity PORT
DIRECTORY``. Its authority is ``DIRECTORY/identity.pem``.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.pki import VALID_FOR, CertificateAuthority
from tests.support.process import LOOPBACK
from xds.linkerd.proto.identity_pb2 import CertifyRequest, CertifyResponse

SERVICE = "io.linkerd.proxy.identity.Identity"
AUTHORITY = "identity"


class IdentityService:
    """``Certify``."""

    def __init__(self, authority: CertificateAuthority) -> None:
        self._authority = authority

    def certify(self, request: CertifyRequest, _: grpc.ServicerContext) -> CertifyResponse:
        """A certificate for the key and the name of the request."""
        leaf = self._authority.certify(request.certificate_signing_request, request.identity)
        until = Timestamp()
        until.FromDatetime(datetime.now(UTC) + VALID_FOR / 2)
        return CertifyResponse(leaf_certificate=leaf, valid_until=until)


def serve(port: int, authority: CertificateAuthority) -> None:
    """Answer until the process ends."""
    method = grpc.unary_unary_rpc_method_handler(
        IdentityService(authority).certify, CertifyRequest.FromString, CertifyResponse.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Certify": method}),))
    server.add_insecure_port(f"{LOOPBACK}:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve(int(sys.argv[1]), CertificateAuthority(Path(sys.argv[2]), AUTHORITY))
