"""Keystores and truststores, by their content: PEM or PKCS12, whatever the declared type.

JKS is the type that Kafka declares by default, and Java opens PKCS12 under it, so the type is not reliable. A real JKS
file is refused with the command that converts it. The content stays in memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_REVOCATIONS = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class Identity(NamedTuple):
    """A private key and its certificate chain."""

    pem: bytes
    """The key without a password, then the chain, its own certificate first."""
    subject: bytes
    """The distinguished name of its own certificate, DER."""
    hosts: frozenset[str]
    """Names and addresses of hosts in its own certificate."""
    expiry_s: float
    """End of the validity of the chain, in seconds since the epoch."""


def read_identity(data: bytes, what: str, password: str | None, key_password: str | None) -> Identity:
    """The key and chain of a keystore's content; `what` names the store in errors. Raises OperatorError."""
    _refuse_jks(data, what)
    if _is_pem(data):
        return pem_identity(data, data, what, key_password)
    from cryptography.hazmat.primitives.serialization import pkcs12

    if password is None:
        raise OperatorError(f"{what} is not a PEM file, and PKCS12 needs its password: set ssl.keystore.password")
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(data, password.encode())
    except ValueError as error:
        raise OperatorError(f"{what} is neither PEM nor a PKCS12 file that ssl.keystore.password opens") from error
    if key is None or certificate is None:
        raise OperatorError(f"{what} lacks a private key with its certificate; add both to it")
    return _identity(key, _chain(certificate, others), what)


def pem_identity(key_data: bytes, chain_data: bytes, what: str, key_password: str | None) -> Identity:
    """The key and chain of PEM blocks. Raises OperatorError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = _KEY.search(key_data)
    if found is None:
        raise OperatorError(f"{what} has no private key as PEM (-----BEGIN PRIVATE KEY-----); add it")
    encrypted = b"ENCRYPTED" in found.group(0)
    if encrypted and not key_password:
        raise OperatorError(f"the private key of {what} is encrypted: set ssl.key.password")
    try:
        key = load_pem_private_key(found.group(0), (key_password or "").encode() if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = "ssl.key.password does not open it" if encrypted else "it is damaged, or neither RSA nor EC"
        raise OperatorError(f"the private key of {what} can't be read: {reason}") from error
    certificates = _certificates(chain_data, what)
    if not certificates:
        raise OperatorError(f"{what} has no certificate as PEM (-----BEGIN CERTIFICATE-----); add it")
    return _identity(key, certificates, what)


def read_trusted(data: bytes, what: str, password: str | None) -> str:
    """The certificates of a truststore's content as PEM. Raises OperatorError."""
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    _refuse_jks(data, what)
    if _is_pem(data):
        certificates = _certificates(data, what)
    else:
        try:
            store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
        except ValueError as error:
            raise OperatorError(
                f"{what} is neither PEM nor a PKCS12 file that ssl.truststore.password opens"
            ) from error
        entries = [store.cert, *store.additional_certs]
        certificates = [entry.certificate for entry in entries if entry is not None]
    if not certificates:
        raise OperatorError(f"{what} has no certificate; add the trusted certificates to it")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def read_revocation_lists(data: bytes, what: str) -> bytes:
    """The revocation lists of a file's content as PEM. Raises OperatorError."""
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_pem_x509_crl

    try:
        lists = [load_pem_x509_crl(block) for block in _REVOCATIONS.findall(data)]
    except ValueError as error:
        raise OperatorError(f"a revocation list of {what} is damaged; replace it") from error
    if not lists:
        raise OperatorError(f"{what} has no revocation list as PEM (-----BEGIN X509 CRL-----); add one")
    return b"".join(each.public_bytes(Encoding.PEM) for each in lists)


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _refuse_jks(data: bytes, what: str) -> None:
    if data.startswith((JKS_MAGIC, JCEKS_MAGIC)):
        path = what.partition(" ")[2]
        raise OperatorError(
            f"{what} is a JKS file, which only Java reads; convert it: keytool -importkeystore -srckeystore {path} "
            f"-destkeystore {path}.p12 -deststoretype PKCS12"
        )


def _certificates(data: bytes, what: str) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return [load_pem_x509_certificate(block) for block in _CERTIFICATE.findall(data)]
    except ValueError as error:
        raise OperatorError(f"a certificate of {what} is damaged; replace it") from error


def _chain(certificate: Certificate, others: Sequence[Certificate]) -> list[Certificate]:
    """The chain from the own certificate up; a PKCS12 file may have another order."""
    chain = [certificate]
    left = [each for each in others if each != certificate]
    while (above := next((each for each in left if each.subject == chain[-1].issuer), None)) is not None:
        left.remove(above)
        chain.append(above)
    return chain


def _identity(key: Any, chain: Sequence[Certificate], what: str) -> Identity:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    own = chain[0]
    if own.public_key() != key.public_key():
        raise OperatorError(f"the first certificate of {what} does not match its private key; put it first")
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem += b"".join(each.public_bytes(Encoding.PEM) for each in chain)
    expiry_s = min(each.not_valid_after_utc.timestamp() for each in chain)
    return Identity(pem, own.subject.public_bytes(), _hosts(own), expiry_s)


def _hosts(certificate: Certificate) -> frozenset[str]:
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return frozenset()
    addresses = (str(each) for each in names.get_values_for_type(IPAddress))
    return frozenset((*names.get_values_for_type(DNSName), *addresses))
