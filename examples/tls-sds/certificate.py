"""Certificates for the example: ``python certificate.py make DIRECTORY`` and ``python certificate.py show HOST:PORT``.

``make`` keeps an authority in the directory (``ca.pem``), issues a certificate of its own each time it is run, and
writes it as the SDS resource that the listener names (``secret.yaml``). ``show`` prints the serial number of the
certificate that a port serves. Keys stay in the directory; never put one into git.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

NAME = "edge-certificate"
LOOPBACK = "127.0.0.1"
VALID_FOR = datetime.timedelta(days=7)
CLOCK_SKEW = datetime.timedelta(hours=1)
CONNECT_TIMEOUT_S = 5.0

Key = ec.EllipticCurvePrivateKey


def main() -> None:
    """Make or show."""
    parser = argparse.ArgumentParser(description="Certificates for the example.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make").add_argument("directory", type=Path)
    commands.add_parser("show").add_argument("address", metavar="HOST:PORT")
    arguments = parser.parse_args()
    if arguments.command == "make":
        print(f"certificate {make(arguments.directory):x} in {arguments.directory}/secret.yaml")
    else:
        print(f"certificate {served(arguments.address):x} at {arguments.address}")


def make(directory: Path) -> int:
    """Issue a certificate and write its secret; its serial number."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, authority_key = _authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    builder = _builder("localhost", authority.subject, key).add_extension(x509.SubjectAlternativeName(names), False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    _write_private(directory / "secret.yaml", json.dumps({"resources": [_secret(certificate, key)]}, indent=2))
    return certificate.serial_number


def served(address: str) -> int:
    """Serial number of the certificate that ``HOST:PORT`` serves now."""
    host, _, port = address.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port)), timeout=CONNECT_TIMEOUT_S)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def _authority(directory: Path) -> tuple[x509.Certificate, Key]:
    """The directory's authority, made on first use."""
    path, key_path = directory / "ca.pem", directory / "ca.key"
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder("example authority", _name("example authority"), key)
        made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(key, hashes.SHA256())
        _write_private(key_path, _key_pem(key))
        path.write_text(_pem(made))
    loaded = load_pem_private_key(key_path.read_bytes(), None)
    assert isinstance(loaded, Key)
    return x509.load_pem_x509_certificate(path.read_bytes()), loaded


def _builder(name: str, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
    )


def _secret(certificate: x509.Certificate, key: Key) -> dict[str, object]:
    pair = {"certificate_chain": {"inline_string": _pem(certificate)}, "private_key": {"inline_string": _key_pem(key)}}
    type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    return {"@type": type_url, "name": NAME, "tls_certificate": pair}


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


if __name__ == "__main__":
    main()
