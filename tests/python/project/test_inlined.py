"""The compiled module calls no vector instruction as a function.

A closure, or a function that is not inlined, does not have the instruction set of the kernel in which it
stands. Every vector operation in it is then a call, and the kernel takes several times as long, with the same
results.
"""

import platform
import re
import shutil
import subprocess

import pytest
from shoal import _core

#: More instructions than one operation takes, with its loads and its store.
MOST = 9


def single_operations(lines):
    """Yield functions that compute a vector from others, and store it where their caller wants it."""
    body = []
    for line in lines:
        _, is_instruction, instruction = line.rstrip().partition(":\t")
        if not is_instruction or instruction.startswith(("int3", "nop", "xchg", "cs nop", "data16")):
            body = []
        elif instruction != "ret":
            body.append(instruction)
        else:
            text = "; ".join(body)
            if (
                len(body) <= MOST
                and all(part[0] in "vk" for part in body)
                and re.search(r"\(%r(si|dx|cx)\)", text)
                and re.search(r"[yz]mm\d+(\{.*\})?,\(%rdi\)", text)
            ):
                yield text
            body = []


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not shutil.which("objdump"), reason="needs objdump, x86-64"
)
def test_every_vector_operation_is_inlined():
    command = ["objdump", "--disassemble", "--no-show-raw-insn", "--section=.text", _core.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
        found = sorted(set(single_operations(listing.stdout)))
    assert listing.returncode == 0
    # The crate `half` converts eight values per call.
    assert [text for text in found if "vcvtph2ps" not in text] == []
