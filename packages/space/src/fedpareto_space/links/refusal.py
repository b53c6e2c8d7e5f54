"""Refusals of what comes over a link: named, so that they can be counted, and never another exception."""

from __future__ import annotations

from fedpareto.config.errors import UserError


class Refused(UserError):
    """Bytes that are no valid frame, packet, PDU or bundle; `layer` and `reason` say which rule they break."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"{layer} refused: {reason}")
        self.layer, self.reason = layer, reason
