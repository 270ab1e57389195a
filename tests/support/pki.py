"""A certificate authority for the tests: TLS and mutual TLS to the server, SDS secrets, TLS upstreams."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = datetime.timedelta(days=2)
CLOCK_SKEW = datetime.timedelta(hours=1)
DEFAULT_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as PEM text and as files."""

    pem: str
    key_pem: str
    path: Path
    key_path: Path
    serial: int

    def server_context(self) -> ssl.SSLContext:
        """A TLS server's context with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key_path)
        return context


class CertificateAuthority:
    """Issues certificates into ``directory``."""

    def __init__(self, directory: Path, name: str = "test-ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = self._certificate.public_bytes(Encoding.PEM).decode()
        self.path = directory / f"{name}.pem"
        self.path.write_text(self.pem)

    def issue(
        self,
        name: str,
        subject_alt_names: Sequence[str] = DEFAULT_NAMES,
        valid_for: datetime.timedelta = VALID_FOR,
    ) -> Certificate:
        """A certificate for servers and clients; addresses, URIs (``spiffe://``) and DNS names are told apart."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(_subject(name), self._name, key.public_key(), valid_for)
            .add_extension(x509.SubjectAlternativeName([_general_name(text) for text in subject_alt_names]), False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._write(name, certificate, key)

    def client_context(self) -> ssl.SSLContext:
        """A TLS client's context that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.path))

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
        pem = certificate.public_bytes(Encoding.PEM).decode()
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        path, key_path = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        path.write_text(pem)
        key_path.write_text(key_pem)
        return Certificate(pem, key_pem, path, key_path, certificate.serial_number)

    def certify(self, request_der: bytes, name: str) -> bytes:
        """A certificate, as DER, for the key of a signing request and one DNS name."""
        request = x509.load_der_x509_csr(request_der)
        key = request.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey), "the keys of tests are of this kind"
        builder = _builder(_subject(name[:64]), self._name, key)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name)]), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.DER)


def signing_request(name: str) -> tuple[bytes, bytes]:
    """A new key (PKCS#8) and a signing request for a DNS name, both as DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name[:64]))
    builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(name)]), critical=False)
    request = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), request


def served_serial(port: int, ca: CertificateAuthority) -> int:
    """Serial number of the certificate that a loopback TLS port serves."""
    pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(ca.path), timeout=5)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid_for: datetime.timedelta = VALID_FOR,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + valid_for)
    )


def _general_name(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
