#!/usr/bin/env python3
"""Mutation score of the emulator: how many planted bugs does it notice?

mutate_ptx.py F.ptx --launch F.json [--most 500] [--seed 0] [--jobs 2] [--only REGEX] [--json OUT]
mutate_ptx.py FOLDER [--shard 0/2] [...]

One mutant is one statement of F.ptx changed by one operator: a wait, commit, fence, arrive or
expect_tx deleted, a release or an acquire made relaxed, a scope made one narrower, a cluster barrier
of the start-up deleted, a parity flipped, the next barrier instead of the right one, an arrival count
one off, transaction bytes 16 off, another swizzle mode, another tensor-memory column, a multicast bit
dropped. A FOLDER holds suite.json, {"name": {"ptx": F, "launch": [F, ...], "option": [...]}, ...}:
one score for each, and of --shard i/n every n-th mutant, so that several machines share the work;
--json files of all shards together give the table (--merge A.json B.json). Each is run by `ptxemu run` under several policies with all checks. A mutant is noticed when
it is reported (a finding that the original has under no policy, a trap, a deadlock) or changes what a buffer with "save"
holds, under a policy and seed where the original is stable and clean. The rest survive, and are listed.

PTXEMU names the command (default: ptxemu on the PATH). Exit status 1 when the original has findings.
"""

import argparse
import collections
import concurrent.futures
import copy
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

POLICIES = (("random", 1), ("late", 0), ("split", 2), ("eager", 0), ("random", 3))
# Which formal findings a kernel has depends on when its copies end: a mutant that changes nothing but
# time has those that the original has under another seed.
MORE_OF_THE_ORIGINAL = (("random", 5), ("split", 6), ("random", 7), ("split", 8))
# A mutant whose CTAs wait for each other's counts for ever is stopped after so many times the
# instructions of the original, not after a time that depends on the machine's load; --option may say
# another number.
OF_THE_ORIGINAL = 100

GUARD = r"(?P<guard>@!?\S+\s+)?"


def scoped(guard, text):
    """A statement with helpers of its own, under the guard of the original."""
    return "{ " + text.replace("GUARD ", guard or "") + " }"


class Operator:
    """`pattern` finds statements, `change` gives the new text of one or None; `before`: only those
    that stand before the first statement of this pattern."""

    def __init__(self, name, pattern, change, before=None):
        self.name = name
        self.pattern = re.compile(r"^\s*" + GUARD + r"(?P<text>" + pattern + r"[^;]*);")
        self.change = change
        self.before = re.compile(before) if before else None


def deleted(_match):
    return ""


def wait_passes(match):
    predicate = re.match(r"\S+\s+(%?[\w$]+)", match["text"])
    return f"{match['guard'] or ''}setp.eq.u32 {predicate[1]}, 0, 0;" if predicate else None


def parity_flipped(match):
    parts = re.match(r"(\S+\s+%?[\w$|]+\s*,\s*\[[^\]]*\]\s*,\s*)(%?[\w$]+)(.*)", match["text"], re.S)
    if not parts:
        return None
    return scoped(match["guard"], ".reg .b32 mutant; xor.b32 mutant, %s, 1; GUARD %smutant%s;"
                  % (parts[2], parts[1], parts[3]))


def address_plus(amount, which=0):
    """The address operand number `which` is `amount` further on."""
    def change(match):
        found = list(re.finditer(r"\[([^\]+]+)(?:\+(-?\w+))?\]", match["text"]))
        if len(found) <= which:
            return None
        at = found[which]
        offset = int(at[2] or "0", 0) + amount
        text = f"{match['text'][:at.start()]}[{at[1].strip()}+{offset}]{match['text'][at.end():]}"
        return f"{match['guard'] or ''}{text};"
    return change


def last_operand_plus(amount, mnemonic="add.s32"):
    def change(match):
        parts = re.match(r"(.*,\s*)(%?[\w$]+)\s*$", match["text"], re.S)
        if not parts:
            return None
        if not parts[2].startswith("%") and not re.match(r"[A-Za-z_$]", parts[2]):
            value = int(parts[2], 0) + amount
            return f"{match['guard'] or ''}{parts[1]}{value};" if value > 0 else None
        return scoped(match["guard"], ".reg .b32 mutant; %s mutant, %s, %d; GUARD %smutant;"
                      % (mnemonic, parts[2], amount, parts[1]))
    return change


def relaxed(match):
    """The default orders are .acquire and .release: .relaxed has to name its scope."""
    text = match["text"]
    if ".relaxed" in text:
        return None
    changed = re.sub(r"\.(acquire|release|acq_rel)\b", ".relaxed", text)
    if changed == text and text.startswith("mbarrier"):
        changed = re.sub(r"^(mbarrier\.\w+(?:\.parity|\.expect_tx|\.noComplete)*)(?=\.)", r"\1.relaxed.cta", text)
    if changed == text:
        changed = re.sub(r"^(barrier\.cluster\.arrive)(?!\.relaxed)", r"\1.relaxed", text)
    return f"{match['guard'] or ''}{changed};" if changed != text else None


def scope_narrowed(wide, narrow):
    def change(match):
        text = re.sub(r"(?<!barrier)\." + wide + r"(?![\w:])", "." + narrow, match["text"])
        return f"{match['guard'] or ''}{text};" if text != match["text"] else None
    return change


def barrier_deleted(match):
    """An arrive and the wait that belongs to it; what stands between stays."""
    between = match["text"].split(";", 1)[1].rsplit("barrier.cluster.wait", 1)[0]
    return re.sub(r"@!?\S+\s+$", "", between)


def other_swizzle(match):
    """A 64-bit constant with a swizzle field (bits 61 to 63) and a stride gets another mode."""
    def swap(number):
        value = int(number[0].rstrip("U"), 0) & (1 << 64) - 1
        mode = value >> 61
        if mode == 0 or value >> 32 & 0x3fff == 0:
            return number[0]
        value = value & ~(7 << 61) | (4 if mode == 2 else 2) << 61
        return str(value - (1 << 64) if value >> 63 else value)
    text = re.sub(r"(?<![\w%.])-?(?:0[xX][0-9a-fA-F]+|\d{12,})U?(?!\w)", swap, match["text"])
    return f"{match['guard'] or ''}{text};" if text != match["text"] else None


def multicast_bit_dropped(match):
    parts = re.match(r"(.*\]\s*,\s*)(%?[\w$]+)(\s*(?:,\s*%?[\w$]+\s*)?)$", match["text"], re.S)
    if not parts:
        return None
    return scoped(match["guard"], ".reg .b16 mutant; sub.s16 mutant, %s, 1; and.b16 mutant, mutant, %s; "
                  "GUARD %smutant%s;" % (parts[2], parts[2], parts[1], parts[3]))


OPERATORS = [
    Operator("delete mbarrier wait", r"mbarrier\.(?:try_wait|test_wait)\b", wait_passes),
    Operator("delete wait::ld", r"tcgen05\.wait::ld\b", deleted),
    Operator("delete wait::st", r"tcgen05\.wait::st\b", deleted),
    Operator("delete wgmma.wait_group", r"wgmma\.wait_group\b", deleted),
    Operator("delete bulk wait_group", r"cp\.async\.bulk\.wait_group\b", deleted),
    Operator("delete cp.async wait_group", r"cp\.async\.wait_(?:group|all)\b", deleted),
    Operator("delete cluster wait", r"barrier\.cluster\.wait\b", deleted),
    Operator("delete bar.sync", r"(?:bar|barrier)(?:\.cta)?\.sync\b", deleted),
    Operator("delete bar.arrive", r"(?:bar|barrier)(?:\.cta)?\.arrive\b", deleted),
    Operator("delete tcgen05.commit", r"tcgen05\.commit\b", deleted),
    Operator("delete wgmma.commit_group", r"wgmma\.commit_group\b", deleted),
    Operator("delete bulk commit_group", r"cp\.async\.bulk\.commit_group\b", deleted),
    Operator("delete fence.proxy.async", r"fence\.proxy\.async\b", deleted),
    Operator("delete fence.proxy.tensormap", r"fence\.proxy\.tensormap\b", deleted),
    Operator("delete fence.mbarrier_init", r"fence\.mbarrier_init\b", deleted),
    Operator("delete griddepcontrol.wait", r"griddepcontrol\.wait\b", deleted),
    Operator("delete start-up cluster barrier",
             r"barrier\.cluster\.arrive\b[^;]*;(?:(?!barrier\.cluster\.arrive\b)[^{}]){0,2000}?barrier\.cluster\.wait\b", barrier_deleted,
             before=r"mbarrier\.(?:try_wait|test_wait)\b"),
    Operator("acquire to relaxed", r"(?:mbarrier\.(?:try_wait|test_wait)\b|ld\.(?:\w+\.)?acquire\b)", relaxed),
    Operator("release to relaxed", r"(?:mbarrier\.arrive\b|barrier\.cluster\.arrive\b|(?:st|red|atom)\.(?:\w+\.)?(?:release|acq_rel)\b)", relaxed),
    Operator(".cluster to .cta", r"(?:mbarrier|fence\.(?:acq_rel|sc|acquire|release)|fence\.proxy\.tensormap|ld|st|red|atom)\b", scope_narrowed("cluster", "cta")),
    Operator(".gpu to .cluster", r"(?:mbarrier|fence|ld|st|red|atom)\b", scope_narrowed("gpu", "cluster")),
    Operator("delete wgmma.fence", r"wgmma\.fence\b", deleted),
    Operator("delete arrive", r"mbarrier\.arrive\b(?!\.expect_tx)(?![^\n;]*\.expect_tx)", deleted),
    Operator("delete expect_tx", r"mbarrier\.(?:arrive\S*\.expect_tx|expect_tx)\b", deleted),
    Operator("flip parity", r"mbarrier\.(?:try_wait|test_wait)\S*\.parity\b", parity_flipped),
    Operator("next barrier in wait", r"mbarrier\.(?:try_wait|test_wait)\b", address_plus(8)),
    Operator("next barrier in arrive", r"mbarrier\.arrive\b", address_plus(8)),
    Operator("next barrier in commit", r"tcgen05\.commit\b", address_plus(8)),
    Operator("arrival count + 1", r"mbarrier\.init\b", last_operand_plus(1)),
    Operator("arrival count - 1", r"mbarrier\.init\b", last_operand_plus(-1)),
    Operator("tx bytes + 16", r"mbarrier\.(?:arrive\S*\.expect_tx|expect_tx)\b", last_operand_plus(16)),
    Operator("tx bytes - 16", r"mbarrier\.(?:arrive\S*\.expect_tx|expect_tx)\b", last_operand_plus(-16)),
    Operator("another swizzle", r"(?:or|mov|add|and)\.(?:b|s|u)64\b", other_swizzle),
    Operator("another column in ld", r"tcgen05\.ld\b", address_plus(32)),
    Operator("another column in st", r"tcgen05\.st\b", address_plus(32)),
    Operator("another column in mma", r"tcgen05\.mma\b", address_plus(32)),
    Operator("multicast bit dropped", r"\S*\.multicast::cluster\b", multicast_bit_dropped),
]


def statements(text):
    """Offsets of statements: one begins where a line's code begins or after a ; or a brace."""
    begin = 0
    for match in re.finditer(r"[;{}]\s*|:\s*\n|\n", text):
        yield begin
        begin = match.end()


def body_of(text, kernel):
    """Where the kernel's body lies; the whole text when no name is given."""
    if not kernel:
        return 0, len(text)
    begin = text.index("{", text.index(")", re.search(r"\.entry\s+" + re.escape(kernel) + r"\b", text).end()))
    after = text.find(".entry", begin)
    return begin, after if after >= 0 else len(text)


def mutants(text, kernel=""):
    """Every (operator, line, changed text), in order."""
    found = []
    first, last = body_of(text, kernel)
    clean = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
    for begin in statements(clean):
        if not first <= begin < last:
            continue
        window = clean[begin:begin + 20000]
        for operator in OPERATORS:
            match = operator.pattern.match(window)
            if not match or "\n\n" in match["text"].partition(";")[0]:
                continue
            if operator.before and operator.before.search(clean, first, begin):
                continue
            changed = operator.change(match)
            if changed is None:
                continue
            line = text.count("\n", 0, begin) + 1
            old = match[0]
            new = changed + "\n" * (old.count("\n") - changed.count("\n"))
            found.append((operator.name, line, old.strip(), text[:begin] + new + text[begin + len(old):]))
    return found


class Runner:
    def __init__(self, launch_file, timeout):
        self.launch = json.loads(pathlib.Path(launch_file).read_text())
        self.folder = pathlib.Path(launch_file).parent
        self.timeout = timeout
        self.instructions = 0  # the most that the original took
        self.limit = []  # a mutant's option, once the original has run
        self.command = os.environ.get("PTXEMU", "ptxemu")

    def run(self, ptx_text, policy, seed, options):
        """(exit status, one line about findings, digest of what was saved, {(rule, line)})"""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            launch = copy.deepcopy(self.launch)
            saved = []
            for name, buffer in launch.get("buffers", {}).items():
                if "npy" in buffer:
                    beside = self.folder / buffer["npy"]
                    buffer["npy"] = os.path.abspath(beside if beside.exists() else buffer["npy"])
                if buffer.pop("save", None) is not None:
                    buffer["save"] = str(folder / f"{name}.npy")
                    saved.append(folder / f"{name}.npy")
            (folder / "k.ptx").write_text(ptx_text)
            for one in launch.get("launches", []):
                one.pop("ptx", None)
            (folder / "launch.json").write_text(json.dumps(launch))
            report = folder / "report.json"
            limit = [] if any(option.startswith("--max-instructions") for option in options) else self.limit
            command = [self.command, "run", str(folder / "k.ptx"), "--launch", str(folder / "launch.json"),
                       "--policy", policy, "--seed", str(seed), "--check", "all", "--report", str(report),
                       "--allow-paths", *limit, *options]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
            except subprocess.TimeoutExpired:
                return 124, "ran too long", "", set()
            digest = hashlib.sha256(b"".join(p.read_bytes() for p in saved if p.exists())).hexdigest()
            said = done.stderr.strip().splitlines()[-1:] or [""]
            if report.exists():
                data = json.loads(report.read_text())
                self.instructions = max(self.instructions, data["counters"]["warp_instructions"])
                found = {(f["rule"], f["ptx_line"]) for f in data["findings"]}
                errors = sorted({f["rule"] for f in data["findings"] if f["severity"] == "error"})
                said = [data["status"] + (": " + ", ".join(errors) if errors else "")]
                return done.returncode, said[0], digest, found
            return done.returncode, said[0], digest, set()


def judge(runner, mutant, baseline, known, options):
    for (policy, seed), digest in baseline.items():
        status, said, saved, found = runner.run(mutant, policy, seed, options)
        where = f"{policy}:{seed}"
        if status == 2:
            return "invalid", said
        if status == 124:
            return "reported", f"{where} ran too long"
        if status != 0:
            return "reported", f"{where} {said}"
        if found - known:
            return "reported", f"{where} {sorted(found - known)[0][0]} (formal)"
        if saved != digest:
            return "changed", where
    return "survived", ""


def judge_all(trials, mutant, options):
    for runner, baseline, known in trials:
        fate, detail = judge(runner, mutant, baseline, known, options)
        if fate != "survived":
            break
    return fate, detail


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ptx", nargs="?", help="or a folder with a suite.json")
    parser.add_argument("--launch", action="append", default=[], help="may be given again: noticed by one is noticed")
    parser.add_argument("--most", type=int, default=500, help="mutants of a kernel that are run, chosen by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th mutant, from the i-th on")
    parser.add_argument("--json", help="where every mutant's fate is written")
    parser.add_argument("--merge", nargs="+", default=[], help="files of --json: their table, nothing is run")
    parser.add_argument("--option", action="append", default=[], help="more options of ptxemu run")
    parser.add_argument("--list", action="store_true", help="count the mutants by operator and stop")
    options = parser.parse_args()
    if not options.merge and not options.ptx:
        parser.error("ptx: is missing; accepted: F.ptx, or a folder with a suite.json")
    return options


def kernels(options):
    """(name, PTX text, launch files, options of ptxemu run) of each kernel."""
    path = pathlib.Path(options.ptx)
    if not path.is_dir():
        return [(path.stem, path.read_text(), options.launch, options.option)]
    suite = json.loads((path / "suite.json").read_text())
    return [(name, (path / one["ptx"]).read_text(), [str(path / launch) for launch in one["launch"]],
             [*one.get("option", []), *options.option]) for name, one in suite.items()]


def chosen(options, text, launches):
    """The mutants that are run, in order of their lines."""
    first = json.loads(pathlib.Path(launches[0]).read_text()) if launches else {}
    kernel = first.get("launches", [first])[0].get("kernel", "")
    found = [m for m in mutants(text, kernel) if re.search(options.only, m[0])]
    random.Random(options.seed).shuffle(found)
    shard, shards = map(int, options.shard.split("/"))
    return sorted(found[:options.most], key=lambda m: (m[1], m[0]))[shard::shards]


def baseline_of(text, launch, more):
    """(a runner, what each policy saves, the original's findings in any run) of a launch; raises when one is an error."""
    runner, baseline, found_here = Runner(launch, 120), {}, set()
    for policy, seed in POLICIES + MORE_OF_THE_ORIGINAL:
        status, said, digest, found = runner.run(text, policy, seed, more)
        if status != 0:
            raise RuntimeError(f"{launch}: the original under {policy}:{seed}: {said}")
        found_here |= found
        if (policy, seed) in POLICIES:
            baseline[policy, seed] = digest
    runner.limit = ["--max-instructions", str(OF_THE_ORIGINAL * runner.instructions)]
    return runner, baseline, found_here


def with_known(trials):
    """Each launch with the findings that a mutant may have there: those of the original with any launch, since they may
    depend on time; but whether floats are added in a fixed order is up to the launch (deterministic or not)."""
    timely = {finding for _, _, found in trials for finding in found if finding[0] != "order_dependent"}
    return [(runner, baseline, found | timely) for runner, baseline, found in trials]


def baselines(text, launches, more):
    return with_known([baseline_of(text, launch, more) for launch in launches])


def run_kernels(options, pool):
    """The fate of every mutant, by kernel."""
    started = []
    for name, text, launches, more in kernels(options):
        found = chosen(options, text, launches)
        if not found:
            continue
        original = pool.submit(baselines, text, launches, more)
        started.append((name, found, [pool.submit(lambda m, t=original, o=more: judge_all(t.result(), m, o), m[3]) for m in found]))
    fates = {}
    for name, found, jobs in started:
        fates[name] = []
        for (operator, line, old, _), job in zip(found, jobs):
            fate, detail = job.result()
            fates[name].append({"operator": operator, "line": line, "statement": old, "fate": fate, "detail": detail})
        print(f"{name}: {len(found)} mutants", file=sys.stderr, flush=True)
    return fates


def merged(files):
    fates = collections.defaultdict(list)
    for file in files:
        for name, some in json.loads(pathlib.Path(file).read_text()).items():
            fates[name] += some
    return {name: sorted(all_of, key=lambda f: (f["line"], f["operator"])) for name, all_of in fates.items()}


def main():
    options = arguments()
    if options.list:
        for name, text, launches, _ in kernels(options):
            print(name)
            for operator, count in sorted(collections.Counter(m[0] for m in chosen(options, text, launches)).items()):
                print(f"{count:6} {operator}")
        return 0
    if options.merge:
        fates = merged(options.merge)
    else:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            try:
                fates = run_kernels(options, pool)
            except RuntimeError as error:
                pool.shutdown(cancel_futures=True)
                print(error, file=sys.stderr)
                return 1
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(fates, indent=1))
    for name, some in fates.items():
        print(f"\n{name}")
        print_table(some)
    return 0


def print_table(fates):
    table = collections.defaultdict(collections.Counter)
    for fate in fates:
        table[fate["operator"]][fate["fate"]] += 1
        table["all"][fate["fate"]] += 1
    print(f"{'operator':28} {'mutants':>8} {'noticed':>8} {'score':>7}")
    for name in sorted(set(table) - {"all"}) + ["all"]:
        row = table[name]
        noticed = row["reported"] + row["changed"]
        valid = noticed + row["survived"]
        print(f"{name:28} {valid:8} {noticed:8} {100 * noticed / valid if valid else 0:6.1f}%")
    for fate in fates:
        if fate["fate"] in ("survived", "invalid"):
            print(f"{fate['fate']}: line {fate['line']}: {fate['operator']}: {fate['statement'][:100]} {fate['detail']}")


if __name__ == "__main__":
    sys.exit(main())
