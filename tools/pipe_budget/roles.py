"""Which role each line of PTX belongs to, as the kernel itself says.

NVRTC's --generate-line-info precedes statements of PTX with `.loc FILE LINE COLUMN, function_name NAME, inlined_at FILE
LINE COLUMN`: the function that a statement comes from and the call that it was inlined at, which an earlier .loc
describes likewise. A role is a class with a function run() (src/kernels/sm100), found on that chain. The option does not
change the code.
"""

import re

from . import inputs

ROLES = {"Softmax": "softmax", "Correction": "correction", "MmaIssuer": "mma", "Loader": "load", "Storer": "store", "Scheduler": "schedule",
         "Compute": "compute", "Reducer": "reduce", "StatisticSplitter": "statistics"}

LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+(\S+?)\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
STRING = re.compile(r"^(\$\w+):")
BYTE = re.compile(r"^\s*\.b8\s+(\d+)")
STATEMENT = re.compile(r"^\s+(@!?%p\d+\s+)?[a-z]")


def strings(text):
    """The names that .loc refers to: labels of the section .debug_str, a byte a line."""
    found, label = {}, None
    for row in text[max(text.find(".debug_str"), 0):].splitlines():
        if match := STRING.match(row):
            label = match[1]
            found[label] = ""
        elif label and (match := BYTE.match(row)) and match[1] != "0":
            found[label] += chr(int(match[1]))
    return found


def class_of_run(mangled):
    """X of fa4::...::X<...>::run(); None for another function."""
    if not re.match(r"_ZNK?3fa4", mangled) or not mangled.endswith("3runEv"):
        return None
    at, name = mangled.index("3fa4"), None
    while match := re.match(r"\d+", mangled[at:]):
        start = at + len(match[0])
        at = start + int(match[0])
        name = mangled[start:at]
    return name if mangled[at:at + 1] == "I" else None


def role_of(mangled):
    name = class_of_run(mangled)
    if name is not None and name not in ROLES:
        raise inputs.InputError(f"the kernel has a role {name}; accepted: {', '.join(ROLES)} (tools/pipe_budget/roles.py)")
    return ROLES.get(name)


def roles_of(text):
    """{line of PTX: role}; empty for PTX without line information or of kernels that name no role."""
    names = {label: role_of(name) for label, name in strings(text).items()}
    if not any(names.values()):
        return {}
    found, known, role = {}, {}, None   # `known`: role by position of the source, of the last .loc there
    for number, row in enumerate(text.splitlines(), 1):
        if match := LOC.match(row):
            position, caller = match.group(1, 2, 3), match.group(5, 6, 7)
            role = known[position] = names.get(match[4]) or known.get(caller)
        elif role and STATEMENT.match(row):
            found[number] = role
    return found
