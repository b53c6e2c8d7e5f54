"""Error of coded bytes that cannot be decoded."""

from __future__ import annotations

from fedpareto.config.errors import UserError


class CodecError(UserError):
    """Bytes that are not what an encoder of this codec writes: damaged, cut off, of another size or hostile."""
