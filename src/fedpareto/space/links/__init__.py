"""Space links: channels that lose data, space packets, USLP frames, CFDP class 2, bundles, and transports over them."""
