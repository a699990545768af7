"""How owners agree on rows without naming entities: a token is a keyed hash of a label, and the server has no key."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata


def tokens(labels: tuple[str, ...], key: bytes) -> tuple[bytes, ...]:
    """HMAC-SHA256 of each label, normalised so that two ways to write the same text agree."""
    return tuple(
        hmac.new(key, unicodedata.normalize("NFC", label).encode(), hashlib.sha256).digest() for label in labels
    )


def key_for_one_process(seed: int) -> bytes:
    """Within one process there is nothing to hide; the key only has to be the same in every run."""
    return hashlib.sha256(f"fedlu in one process, seed {seed}".encode()).digest()
