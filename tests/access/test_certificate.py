"""Names are read from a certificate as its issuer wrote them, and none from an invalid one."""

from __future__ import annotations

import datetime
import string
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.pki import CertificateAuthority
from xds.access.certificate import NAMES_LIMIT, read_der, read_pem

KEY = ec.generate_private_key(ec.SECP256R1())
NAMES = st.text(string.ascii_letters + string.digits + "-._~/", min_size=1, max_size=40)


def issued(
    common: list[str],
    uris: Sequence[str] = (),
    dns: Sequence[str] = (),
    ends: datetime.datetime = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
    critical: bool = False,
) -> bytes:
    """A certificate in DER."""
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Corp")
    subject = x509.Name([organisation, *(x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns), x509.RFC822Name("a@b.example")]
    if uris or dns:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=critical)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@examples(30)
@given(
    common=st.text(st.characters(categories=("L", "N")), min_size=1, max_size=16),  # at most 64 bytes
    uris=st.lists(NAMES.map("spiffe://corp/{}".format), max_size=3),
    dns=st.lists(NAMES, max_size=3),
    ends=st.datetimes(datetime.datetime(2025, 1, 1), datetime.datetime(2080, 1, 1), timezones=st.just(datetime.UTC)),
    critical=st.booleans(),
)
def test_all_names_and_the_end_are_read(
    common: str, uris: list[str], dns: list[str], ends: datetime.datetime, critical: bool
) -> None:
    found = read_der(issued([common], uris, dns, ends, critical))
    assert (found.cn, found.uris, found.dns) == (common, tuple(uris), tuple(dns))
    assert found.not_after == ends.replace(microsecond=0).timestamp()


def test_a_common_name_counts_if_there_is_one() -> None:
    assert read_der(issued([])).cn == ""
    assert read_der(issued(["admin", "edge-1"])).cn == ""


def test_names_that_nobody_can_mean_are_left_out() -> None:
    found = read_der(issued(["a\x00b"], ["spiffe://corp/a"], ["edge\x00.corp"]))
    assert (found.cn, found.uris, found.dns) == ("", ("spiffe://corp/a",), ())


def test_names_are_bounded() -> None:
    assert len(read_der(issued(["x"], dns=[f"n{number}" for number in range(500)])).dns) == NAMES_LIMIT


def test_the_first_certificate_of_a_chain_counts(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    first, second = authority.issue("first"), authority.issue("second")
    assert read_pem(f"{first.key_pem}{first.pem}{second.pem}").cn == "first"
    with pytest.raises(ValueError, match="no certificate"):
        read_pem(first.key_pem)


WHOLE = issued(["edge-1"], ["spiffe://corp/edge-1"], ["edge-1.corp"])


@examples(300)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.booleans())
def test_damaged_certificates_are_refused_or_read_without_a_crash(at: int, value: int, cut: bool) -> None:
    damaged = WHOLE[:at] if cut else WHOLE[:at] + bytes([value]) + WHOLE[at + 1 :]
    try:
        found = read_der(damaged)
    except ValueError:
        return
    assert not cut
    assert all(name.isprintable() for name in (*found.uris, *found.dns, found.cn))


@examples(200)
@given(st.binary(max_size=60))
def test_noise_is_no_certificate(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_der(data)
