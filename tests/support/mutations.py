"""Small random changes of bytes, of the kinds that break readers of files."""

from __future__ import annotations

import random

INTERESTING = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"-1",
    b"9" * 20,
    b'"',
    b",",
    b"\n",
)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Change one to four places: flip, overwrite, cut, repeat or insert."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(changed) + 1)
        other = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            piece = chance.choice(INTERESTING)
            changed[place : place + len(piece)] = piece
        elif kind == 2:
            del changed[place : place + chance.choice((1, 4, 64, len(changed)))]
        elif kind == 3:
            changed[place:place] = changed[other : other + chance.choice((1, 8, 64))]
        else:
            changed[place:place] = chance.choice(INTERESTING)
    return bytes(changed)
