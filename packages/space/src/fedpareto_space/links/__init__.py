"""Space links: channels that lose data, space packets, USLP frames, CFDP class 2, bundles, and transports over them."""

from importlib.util import find_spec

from fedpareto.config.errors import UserError

if not all(map(find_spec, ("spacepackets", "fastcrc"))):
    raise UserError("space links need packages of their own; try: pip install 'fedpareto[space]'")
