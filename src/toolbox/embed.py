"""embed.py TEXT OUT: a text as the elements of a C array of char, for #include."""

import sys

data = open(sys.argv[1], "rb").read()
assert data.isascii() and b"\0" not in data
with open(sys.argv[2], "w") as out:
    for at in range(0, len(data), 16):
        out.write(", ".join(map(str, data[at:at + 16])) + ",\n")
    out.write("0\n")
