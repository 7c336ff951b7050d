"""A lane's column of a record: word 0 at an address, the next ones 32 words apart.

Each function moves up to eight words, as long as any are left, in one piece of PTX: one address
with immediate offsets serves them all. Words behind the end are neither read nor written; registers
for them hold zero, since the assembler takes one that is not always written for alive all along.
Addresses of shared memory are int32.
"""

from zccl.kernels.cuda._compat import ASYNC_COPIES
from zccl.kernels.cuda._intrinsics import ptx

WORDS = 8


def _if_left(k, left, instruction):
    return f"setp.gt.s32 p, {left}, {32 * k}; @p {instruction};"


def _column(instruction, clear=False):
    """Return the text of eight loads or stores; words left: register 9 of a load, 1 of a store."""
    is_load = instruction.startswith("ld")
    lines = ["{.reg .pred p;"]
    for k in range(WORDS):
        register = k if is_load else k + 2
        place = f"[${8 if is_load else 0}+{128 * k}]"
        both = f"${register}, {place}" if is_load else f"{place}, ${register}"
        if clear:
            lines.append(f"mov.b32 ${k}, 0;")
        lines.append(_if_left(k, "$9" if is_load else "$1", f"{instruction} {both}"))
    return " ".join(lines) + "}"


load_column_or_zero = ptx(_column("ld.global.nc.u32", clear=True), "u" * WORDS, "li", True)
store_column = ptx(_column("st.global.u32"), "", "li" + "u" * WORDS, True)
store_column_shared = ptx(_column("st.shared.u32"), "", "ii" + "u" * WORDS, True)


def _fetch(cc):
    """Return the text that copies from global $1 to shared $0, $2 left, past the registers."""
    if cc >= ASYNC_COPIES:
        lines = ["{.reg .pred p;"]
        for k in range(WORDS):
            copy = f"cp.async.ca.shared.global [$0+{128 * k}], [$1+{128 * k}], 4"
            lines.append(_if_left(k, "$2", copy))
        return " ".join(lines) + "}"
    words = ", ".join(f"w{k}" for k in range(WORDS))
    lines = [f"{{.reg .pred p; .reg .b32 {words};"]
    for k in range(WORDS):
        lines.append(_if_left(k, "$2", f"ld.global.nc.u32 w{k}, [$1+{128 * k}]"))
    for k in range(WORDS):
        lines.append(_if_left(k, "$2", f"st.shared.u32 [$0+{128 * k}], w{k}"))
    return " ".join(lines) + "}"


def _where_async(text):
    return lambda cc: text if cc >= ASYNC_COPIES else ""


# Copies that go on by themselves until their group has arrived; older GPUs copy at once.
fetch_column = ptx(_fetch, "", "ili", True)
end_group = ptx(_where_async("cp.async.commit_group;"), "", "", True)
wait_for_all_but_one = ptx(_where_async("cp.async.wait_group 1;"), "", "", True)
wait_for_all = ptx(_where_async("cp.async.wait_group 0;"), "", "", True)
