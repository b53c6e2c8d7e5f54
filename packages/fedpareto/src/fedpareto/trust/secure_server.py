"""Computation of the server of a secure sum: the masks that did not cancel, from what surviving clients revealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.messages import FARTHEST, LARGEST, Message
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.trust import secure_keys as keys
from fedpareto.trust.secure_client import add, own_mask


@dataclass(frozen=True)
class Unmasking:
    """The end of a round."""

    members: np.ndarray
    """Ids of those who advertised keys, ascending `[m]` …"""
    told: np.ndarray
    """… what, `[m, bytes]` …"""
    peers: np.ndarray
    """… the ids of their neighbours, `[m, k]` …"""
    dealt: np.ndarray
    """… who dealt shares, `[m]` …"""
    survived: np.ndarray
    """… and whose masked numbers are in the sum, `[m]`."""
    round: int
    sent: bytes
    """Digest by which clients know what they were sent (see `digest_of`)."""
    secure_sum: SecureSum

    def left(self, clients: np.ndarray, revealed: np.ndarray, count: int) -> np.ndarray:
        """The sum of all masks that are in the sum of the masked numbers, `[count]`.

        `revealed` `[n, k + 1, bytes]` is what these clients said of their neighbours, and of themselves.
        """
        words, about = self.secure_sum.ring.words, self.round.to_bytes(8, "little")
        total = np.zeros(count, dtype=words)
        answers = dict(zip(clients.tolist(), revealed, strict=True))
        for row in np.flatnonzero(self.survived).tolist():
            total += own_mask(self._secret(row, answers, 1), about, count, words)
        for row in np.flatnonzero(self.dealt & ~self.survived).tolist():
            gone = int(self.members[row])
            private = keys.private_key(self._secret(row, answers, 0))
            for other in self._neighbours(row):
                if self.survived[other]:
                    key = keys.agreed_key(private, self._told(other, 1), keys.MASKING, about + self.sent)
                    add(total, keys.mask(key, count, words), bool(self.members[other] < gone))
        return total

    def _neighbours(self, row: int) -> np.ndarray:
        """The rows of a member's neighbours."""
        there = self.peers[row]
        found: np.ndarray = np.searchsorted(self.members, there[there >= 0])
        return found

    def _told(self, row: int, which: int) -> bytes:
        """One of the three things that a member advertised."""
        return bytes(self.told[row].reshape(3, keys.KEY)[which].tobytes())

    def _secret(self, row: int, answers: Mapping[int, np.ndarray], which: int) -> bytes:
        """A member's secret for masking (0) or of its own mask (1), from the shares of its neighbours (and itself)."""
        shares = dict(self._shares(row, answers))
        itself = answers.get(int(self.members[row]))
        if which == 1 and itself is not None:
            shares[int(self.members[row])] = itself[-1].tobytes()
        holders, needed = list(shares), self.secure_sum.needed(int((self.peers[row] >= 0).sum()) + 1)
        # Any part of them will do. A false share spoils those that it is in.
        for start in range(len(holders) - needed + 1):
            secret = keys.joined({holder: shares[holder] for holder in holders[start : start + needed]})
            if secret is not None and self._fits(row, secret, which):
                return secret
        raise UserError(
            f"the mask of client {self.members[row]} cannot be removed: {len(holders)} clients gave a share of it, "
            f"{needed} that fit are needed (secure_sum.threshold={self.secure_sum.threshold:g})"
        )

    def _shares(self, row: int, answers: Mapping[int, np.ndarray]) -> Iterator[tuple[int, bytes]]:
        """Shares that a member's neighbours revealed of it, by neighbour."""
        own = int(self.members[row])
        for other in self._neighbours(row):
            answer = answers.get(int(self.members[other]))
            if answer is not None:
                share = answer[int(np.flatnonzero(self.peers[other] == own)[0])]
                if share.any():
                    yield int(self.members[other]), share.tobytes()

    def _fits(self, row: int, secret: bytes, which: int) -> bool:
        """True if a secret is the one of which a member told."""
        known = keys.public_key(secret) if which == 0 else keys.commitment(secret)
        return known == self._told(row, which + 1)


def movement(means: Message, begun: Message, last: float, most: float) -> float:
    """The length of the longest mean update. Raises UserError if no honest clients can have it: beyond `most`, which
    they agreed on, or far beyond the `last` one and the model that they began from. Nobody can look at single updates.
    """
    found = 0.0
    for name, mean in means.items():
        largest, length, limit = float(mean.abs().max()) if mean.numel() else 0.0, 0.0, most
        if name in begun:
            length = float((mean.double() - begun[name].double()).norm())
            limit = min(most, max(FARTHEST * last, float(begun[name].double().norm()))) if last else most
        if not (largest <= LARGEST and length <= limit):
            raise UserError(
                f"the mean of '{name}' holds values up to {largest:.3g}, {length:.3g} from where they began; at most "
                f"{LARGEST:g} and {limit:.3g} are accepted, so somebody may have poisoned the sum"
            )
        found = max(found, length)
    return found
