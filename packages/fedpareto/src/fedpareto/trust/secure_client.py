"""Steps of one client of a secure sum, over bytes and arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Message
from fedpareto.contract.secure_sum import FEWEST
from fedpareto.trust import secure_keys as keys

SECRETS = 3 * keys.SECRET
"""Bytes of what a client keeps: the secret of its key for sealing, of that for masking, and of its own mask."""
ADVERTISED = 3 * keys.KEY
"""Bytes of what it advertises: both public keys, and by what its own mask is known again."""
SHARES = 2 * keys.SHARE
"""Bytes that a neighbour gets: a share of the secret for masking, and one of its own mask."""
LETTER = SHARES + keys.TAG
"""Bytes of these shares, sealed."""
REVEALED = keys.SHARE
"""Bytes of what it reveals in the end, of each neighbour and of itself: a share."""
DROPPED, SURVIVED = 1, 2
"""Marks of a neighbour that dealt shares; 0: it did not."""

OWN_SECRETS = "secure.kept.secrets"
"""The name of a round's secrets in what a client keeps."""

Needed = Callable[[int], int]
"""Number of so many holders that are needed to recover a secret."""


def advertised() -> tuple[bytes, bytes]:
    """New secrets for a round, and what is told of them."""
    secrets = b"".join(keys.new_secret() for _ in range(3))
    return secrets, told_of(secrets)


def told_of(secrets: bytes) -> bytes:
    """Both public keys, and by what its own mask is known again."""
    sealing, masking, own = _parts(secrets)
    return keys.public_key(sealing) + keys.public_key(masking) + keys.commitment(own)


def keys_of(state: Message) -> str:
    """A name for a client's keys of a round, from what it keeps; empty if it has none."""
    return sha256(state[OWN_SECRETS].cpu().numpy().tobytes()).hexdigest()[:32] if OWN_SECRETS in state else ""


def digest_of(message: Message) -> bytes:
    """Digest of what a client is sent: names, types and bits, whatever the shape is."""
    digest = sha256()
    for name, tensor in sorted(message.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.numel()} ".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.digest()


def _parts(secrets: bytes) -> tuple[bytes, ...]:
    return tuple(secrets[start : start + keys.SECRET] for start in range(0, SECRETS, keys.SECRET))


def sound(told: Sequence[np.ndarray]) -> np.ndarray:
    """Mask of the clients that advertised keys that can be worked with, `[n]`: each is a key, and nobody else's."""
    heard = [one.tobytes() for one in told]
    known = [[keys.known_as(raw[start : start + keys.KEY]) for raw in heard] for start in (0, keys.KEY)]
    often = [Counter(some) for some in known]
    rows = [
        all(one and counts[one] == 1 for one, counts in zip(row, often, strict=True))
        for row in zip(*known, strict=True)
    ]
    return np.array(rows, dtype=bool)


@dataclass(frozen=True)
class Party:
    """A client with its secrets of a round, and its neighbours with what they advertised, `[k, bytes]`."""

    client: int
    secrets: bytes
    peers: Sequence[int]
    told: np.ndarray
    round: int

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The secrets for sealing, for masking, and of its own mask."""
        return _parts(self.secrets)

    @property
    def about(self) -> bytes:
        """The round to which its keys belong."""
        return self.round.to_bytes(8, "little")

    def sealing_keys(self) -> list[bytes]:
        """The key that it has in common with each neighbour, for shares."""
        return self._agreed(0, keys.SEALING)

    def _agreed(self, which: int, purpose: bytes, *more: bytes, sent: bytes = b"") -> list[bytes]:
        private, start = keys.private_key(self.parts[which]), which * keys.KEY
        others = [self.told[place, start : start + keys.KEY].tobytes() for place in range(len(self.peers))]
        return [keys.agreed_key(private, other, purpose, self.about + sent) for other in [*others, *more]]

    def _must_differ(self) -> None:
        """Raises UserError if two parties have one key: masks of two neighbours with one would cancel. What is agreed
        on is compared, because a key has several spellings.
        """
        for which, purpose in enumerate((keys.SEALING, keys.MASKING)):
            agreed = self._agreed(which, purpose, keys.public_key(self.parts[which]))
            if len(set(agreed)) < len(agreed):
                raise UserError("secure_sum: two of its neighbours have one key, or one has the client's own")

    def dealt(self, needed: Needed, fewest: int) -> tuple[np.ndarray, bytes]:
        """Seal for each neighbour its shares of this client's secrets, `[k, bytes]`; and the client's own share
        of its own mask. `fewest` neighbours there are in a round that was agreed on.
        """
        if len(self.peers) < FEWEST - 1 or len(set(self.peers)) < len(self.peers) or self.client in self.peers:
            raise UserError(f"secure_sum: only a sum of at least {FEWEST} different clients hides each of them")
        if len(self.peers) < fewest:
            raise UserError(
                f"secure_sum: a client and {len(self.peers)} neighbours are of too few to hide each of them; at least "
                f"{fewest} neighbours were agreed on"
            )
        self._must_differ()
        _, masking, own = self.parts
        count = needed(len(self.peers) + 1)
        *of_peers, own_share = keys.shared(own, [*self.peers, self.client], count)
        both = zip(keys.shared(masking, self.peers, count), of_peers, strict=True)
        letters = np.zeros((len(self.told), LETTER), dtype=np.uint8)
        for place, (key, shares) in enumerate(zip(self.sealing_keys(), both, strict=True)):
            letters[place] = np.frombuffer(keys.sealed(key, self.client, b"".join(shares)), dtype=np.uint8)
        return letters, own_share

    def opened(self, letters: np.ndarray, needed: Needed) -> np.ndarray:
        """The shares that neighbours dealt to it, `[k, bytes]`; 0 of those who dealt none, or what is none.

        There are enough of them to recover secrets: fewer would be a sum that hides nobody.
        """
        found = np.zeros((len(letters), SHARES), dtype=np.uint8)
        for place, (peer, key) in enumerate(zip(self.peers, self.sealing_keys(), strict=True)):
            plain = keys.opened(key, peer, letters[place].tobytes()) if letters[place].any() else None
            if plain is not None:
                found[place] = np.frombuffer(plain, dtype=np.uint8)
        self._must_be_enough(int(found.any(axis=1).sum()), needed, "dealt shares that open")
        return found

    def _must_be_enough(self, there: int, needed: Needed, what: str) -> None:
        least = max(needed(len(self.peers) + 1), FEWEST) - 1
        if there < least:
            raise UserError(f"secure_sum: only {there} of its neighbours {what}; {least} are needed to hide them")

    def masked(
        self, whole: np.ndarray, letters: np.ndarray, words: np.dtype[np.unsignedinteger], sent: bytes
    ) -> np.ndarray:
        """Mask the client's numbers `[D]` by its own mask and those that it has in common with neighbours who dealt
        shares.

        These follow from what it was `sent`, so they cancel only with neighbours that were sent the same: if a server
        sent all others a model that training cannot move, the sum would be one client's (Pasquini et al., "Eluding
        secure aggregation in federated learning via model inconsistency", 2022).
        """
        total = whole.astype(f"<i{words.itemsize}").view(words)
        total += own_mask(self.parts[2], self.about, len(total), words)
        for place, (peer, key) in enumerate(zip(self.peers, self._agreed(1, keys.MASKING, sent=sent), strict=True)):
            if letters[place].any():
                add(total, keys.mask(key, len(total), words), self.client < peer)
        return total

    def revealed(self, flags: np.ndarray, shares: np.ndarray, own_share: bytes, needed: Needed) -> np.ndarray:
        """Reveal of each neighbour one of its two shares, as `flags` `[k]` say; at last its own share of its own mask.

        It never says what its own mask is: a server that tells it that it is in the sum, and others that it is not,
        would have its mask from it and its key from them. Shares alone take the same story for most of them.
        """
        dealt = shares.any(axis=1)
        self._must_be_enough(int(((flags == SURVIVED) & dealt).sum()), needed, "are in the sum")
        found = np.zeros((len(flags) + 1, REVEALED), dtype=np.uint8)
        for place in np.flatnonzero(dealt & ((flags == DROPPED) | (flags == SURVIVED))).tolist():
            found[place] = shares[place].reshape(2, keys.SHARE)[flags[place] - DROPPED]
        found[-1] = np.frombuffer(own_share, dtype=np.uint8)
        return found


def own_mask(secret: bytes, about: bytes, count: int, words: np.dtype[np.unsignedinteger]) -> np.ndarray:
    """The mask that a client shares with nobody."""
    return keys.mask(keys.derived(secret, keys.OWN, about), count, words)


def add(total: np.ndarray, mask: np.ndarray, positive: bool) -> None:
    """Add or subtract a mask: of two neighbours the one with the smaller number adds it, the other one subtracts it."""
    if positive:
        total += mask
    else:
        total -= mask
