"""Private certificate authority: its own certificate, and the certificates that it issues, with EC keys on P-256."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName, KeyUsage, Name

AUTHORITY_DAYS = 3650
ISSUED_DAYS = 825
"""The longest period that every TLS library accepts."""
_SLACK = timedelta(days=1)
"""Start of validity before the present: clocks differ."""


class Authority(NamedTuple):
    """A certificate authority: signs certificates."""

    certificate: Certificate
    key: EllipticCurvePrivateKey

    @classmethod
    def make(cls, name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
        """Create an authority, not trusted anywhere yet, that is valid for `days`; `now` with its time zone."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        key = _new_key()
        subject = _named(name)
        builder = _builder(subject, subject, key, now, now + timedelta(days=days))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        """The authority of PEM files. Raises ValueError if they are damaged or not those of `make`."""
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509 import load_pem_x509_certificate

        found, loaded = load_pem_x509_certificate(certificate), load_pem_private_key(key, None)
        if not isinstance(loaded, EllipticCurvePrivateKey) or loaded.public_key() != found.public_key():
            raise ValueError("the key is not that of the certificate")
        return cls(found, loaded)

    def issued(self, certificate: Certificate) -> bool:
        """Return whether this authority signed the certificate."""
        from cryptography.exceptions import InvalidSignature

        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def issue(self, name: str, hosts: Collection[str], now: datetime, days: int = ISSUED_DAYS) -> bytes:
        """Key and certificate for both sides of a connection, as PEM; `hosts` are names and addresses of a server.

        The certificate is valid for `days`, at most as long as the authority.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        end = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = _builder(_named(name), self.certificate.subject, key, now, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return key_pem(key) + certificate.public_bytes(Encoding.PEM)

    @property
    def pem(self) -> bytes:
        """The CA certificate, for truststores."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)


def key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """A private key without a password."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: Name, issuer: Name, key: EllipticCurvePrivateKey, now: datetime, end: datetime
) -> CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def pem_stores(folder: str, name: str) -> dict[str, str]:
    """Kafka's properties of the certificate NAME.pem and of its authority, ca.pem, in a folder."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/{name}.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/ca.pem",
    }
