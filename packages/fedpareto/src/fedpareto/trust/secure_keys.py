"""The cryptography of a secure sum: agreed keys, sealed shares, masks from a stream cipher, and secrets in shares.

All of it is `cryptography`'s: X25519, HKDF with SHA-256, AES-GCM and AES in counter mode. Shamir's sharing is a few
lines over the integers modulo a prime.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError

PRIME = 2**255 - 19
SECRET, SHARE, KEY, TAG = 31, 32, 32, 16
"""Bytes of a secret, which is below the prime, of a share of it, of a key and of what AES-GCM adds."""
SEALING, MASKING, OWN = b"sealing", b"masking", b"own mask"
"""Purposes of a key."""


def need_cryptography() -> None:
    """Raises UserError if there is none; before a run, not in its first round."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise UserError("secure_sum needs a library for keys; try: pip install 'fedpareto[secure]'") from None


def new_secret() -> bytes:
    """Draw a secret from the machine's own randomness, never from a run's seed: all parties know that."""
    return secrets.token_bytes(SECRET)


def private_key(secret: bytes) -> Any:
    """The X25519 key of the owner of a secret."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(derived(secret, b"private key", b""))


def public_key(secret: bytes) -> bytes:
    """The bytes that others need to agree on a key with the owner of a secret."""
    return bytes(private_key(secret).public_key().public_bytes_raw())


def agreed_key(private: Any, other: bytes, purpose: bytes, about: bytes) -> bytes:
    """The key that two owners of secrets have in common, from one's private key and the other's public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return derived(private.exchange(X25519PublicKey.from_public_bytes(other)), purpose, about)


def known_as(public: bytes) -> bytes:
    """A form by which public keys, each of several spellings, are compared: what a known secret agrees on with one.

    Empty if it is none: with a few points of the curve everybody would agree on the same.
    """
    try:
        return agreed_key(private_key(bytes(SECRET)), public, SEALING, b"")
    except ValueError:
        return b""


def derived(secret: bytes, purpose: bytes, about: bytes) -> bytes:
    """A key for one purpose; `about` says whose and of which round it is."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return bytes(HKDF(SHA256(), KEY, None, b"fedpareto secure sum 1 " + purpose + b" " + about).derive(secret))


def commitment(secret: bytes) -> bytes:
    """A digest by which a secret is known again; it says nothing else of it."""
    return hashlib.sha256(b"fedpareto secure sum 1 commitment " + secret).digest()


# -- messages and masks --------------------------------------------------------------------------------------------


def sealed(key: bytes, sender: int, plain: bytes) -> bytes:
    """Seal for the other owner of the key; each of the two seals one message with it, by its number."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return bytes(AESGCM(key).encrypt(_nonce(sender), plain, None))


def opened(key: bytes, sender: int, letter: bytes) -> bytes | None:
    """Open what was sealed; None if it is not what the sender sealed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return bytes(AESGCM(key).decrypt(_nonce(sender), letter, None))
    except InvalidTag:
        return None


def _nonce(sender: int) -> bytes:
    return sender.to_bytes(12, "little")


def mask(key: bytes, count: int, words: np.dtype[np.unsignedinteger]) -> np.ndarray:
    """Draw numbers of a ring that look random to everybody without the key, and are the same on every machine."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()  # A key is used once, so the counter begins at 0.
    return np.frombuffer(stream.update(bytes(count * words.itemsize)), dtype=words)


# -- secrets in shares (Shamir, 1979) ------------------------------------------------------------------------------


def shared(secret: bytes, holders: Sequence[int], needed: int) -> list[bytes]:
    """A share of the secret for each holder, of which any `needed` give the secret and fewer say nothing."""
    coefficients = [int.from_bytes(secret, "little"), *(secrets.randbelow(PRIME) for _ in range(needed - 1))]
    shares = []
    for holder in holders:
        value, place = 0, holder + 1
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE, "little"))
    return shares


def joined(shares: Mapping[int, bytes]) -> bytes | None:
    """The secret of which holders gave these shares, exactly as many as are needed; None if they do not fit."""
    value, places = 0, math.prod(holder + 1 for holder in shares)
    for holder, share in shares.items():
        above, below = places // (holder + 1), math.prod(other - holder for other in shares if other != holder)
        value = (value + int.from_bytes(share, "little") * above * pow(below, -1, PRIME)) % PRIME
    return value.to_bytes(SHARE, "little")[:SECRET] if value < 2 ** (8 * SECRET) else None
