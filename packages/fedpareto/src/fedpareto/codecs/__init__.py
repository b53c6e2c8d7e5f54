"""Codecs: how models and updates travel in few bytes, defined to the last bit. NumPy only."""

from fedpareto.codecs.codec import Codec, ErrorFeedback, Sent
from fedpareto.codecs.errors import CodecError

__all__ = ["Codec", "CodecError", "ErrorFeedback", "Sent"]
