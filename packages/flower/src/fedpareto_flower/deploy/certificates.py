"""Authentication: a private authority that signs the server's certificate, and a key pair for each node."""

from __future__ import annotations

import ipaddress
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpareto.config.errors import DamagedFile, UserError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 365
"""Days for which certificates are valid."""
NOT_ONE = (ValueError, UnsupportedAlgorithm, NotImplementedError, x509.InvalidVersion)
"""Exceptions of `cryptography` for bytes that are no key or certificate, or of a kind that it cannot read."""
SOON = 30
"""Days before expiry from which on a certificate causes a warning."""
LOOPBACK = "127.0.0.1"
OLDEST, NEWEST = 300.0, -5.0
"""Seconds since a signature was made within which Flower accepts it."""

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """Make a key on the curve that Flower requires for nodes."""
    return ec.generate_private_key(ec.SECP384R1())


def openssh(key: Key) -> tuple[bytes, bytes]:
    """Private and public half as OpenSSH writes them."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public + b"\n"


def pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def authority(name: str, key: Key, days: float = AUTHORITY_DAYS) -> x509.Certificate:
    """The certificate of the federation's own authority, which signs the certificate of one server and nothing else."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedpareto {name}")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)  # Signs certificates and lists.
    return (
        _builder(subject, subject, key, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )


def server(host: str, key: Key, signer: x509.Certificate, signing: Key, days: float = SERVER_DAYS) -> x509.Certificate:
    """The server's certificate, for its host name or address and for loopback."""
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
    other = _general_name(host)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    return (
        _builder(subject, signer.subject, key, signing, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*names, *([] if other in names else [other])]), critical=False)
        .sign(signing, hashes.SHA384())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, signing: Key, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - timedelta(days=1))  # Clocks of other machines may be behind.
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def end_of(path: Path) -> float:
    """Time at which the certificate in a file expires, in seconds since 1970."""
    with _reading(path, "certificate"):
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def days_left(path: Path) -> float:
    """Days until the certificate in a file expires; negative if it has."""
    return days_until(end_of(path))


def days_until(seconds: float) -> float:
    """Days from now on; negative if it is over."""
    return (datetime.fromtimestamp(seconds, UTC) - datetime.now(UTC)) / timedelta(days=1)


def load_key(path: Path) -> Key:
    with _reading(path, "private key"):
        content = path.read_bytes()
        is_openssh = b"OPENSSH" in content[:64]
        load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
        key = load(content, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DamagedFile(f"{path} is a key of another kind")
    return key


def load_public(path: Path) -> bytes:
    """A node's public key (an OpenSSH file) in the form in which it is sent."""
    with _reading(path, "public key"):
        key = serialization.load_ssh_public_key(path.read_bytes())
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        name = what.rsplit(maxsplit=1)[-1]
        raise UserError(f"the {name} {path} cannot be read: {problem.strerror or problem}") from None
    except NOT_ONE:
        raise DamagedFile(f"{path} is not a {what}") from None


# -- how a node signs a request: as Flower's SuperNodes do ---------------------------------------------------------

KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER = "flwr-public-key", "flwr-timestamp", "flwr-signature"


class ClocksDiffer(UserError):
    """A request bears a time that is too far from the server's, which passes when the clocks are set right."""


def signed(key: Key) -> dict[str, str]:
    """Headers that show who sent a request, and that it is not a replay."""
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    moment = datetime.now(UTC).isoformat()
    signature = key.sign(moment.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        KEY_HEADER: b64encode(public).decode(),
        TIME_HEADER: moment,
        SIGNATURE_HEADER: b64encode(signature).decode(),
    }


def signer(headers: Mapping[str, str], known: Mapping[bytes, int]) -> int:
    """The number of the node that signed a request; UserError says why it is refused."""
    try:
        public = b64decode(headers[KEY_HEADER], validate=True)
        signature = b64decode(headers[SIGNATURE_HEADER], validate=True)
        moment = headers[TIME_HEADER]
        age = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    except (KeyError, ValueError, TypeError):
        raise UserError("it does not sign its requests as a node does") from None
    if public not in known:
        raise UserError("its key is not registered with this federation")
    if not NEWEST < age < OLDEST:
        raise ClocksDiffer(f"its clock differs from the server's by {abs(age):.0f} s")
    key = serialization.load_pem_public_key(public)
    assert isinstance(key, ec.EllipticCurvePublicKey), "registered keys were read as such"
    try:
        key.verify(signature, moment.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise UserError("its signature is wrong") from None
    return known[public]
