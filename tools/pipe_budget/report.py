"""The report as text."""


def table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(f"{str(cell):<{w}}" for cell, w in zip(row, widths)).rstrip() for row in rows)


def loops(report):
    rows = [("loop", "at", "a time round", "fewest", "most", "trips", "mean", "most frequent")]
    for loop in report["loops"]:
        name = loop["role"] + (", with mask" if loop["masked"] else "")
        names = ", ".join(f"{n} {c}" for n, c in list(loop["opcodes"].items())[:6])
        rows.append((name, f"{loop['address']:#x}", loop["instructions"], loop["fewest"], loop["most"],
                     "-" if loop["trips"] is None else loop["trips"], "-" if loop["mean"] is None else loop["mean"], names))
    return table(rows)


def schedulers(report):
    rows = [("scheduler", "instructions a pair", "of which")]
    for s in report["schedulers"]:
        warps = ", ".join(f"{w['role']} {w['instructions']}" for w in s["warps"])
        rows.append((str(s["scheduler"]) + (" (busiest)" if s["scheduler"] == report["busiest"] else ""), s["instructions"], warps))
    return table(rows)


def units(report):
    period = report["chain"]["period"]
    rows = [("unit", "clocks a pair", "of the period")]
    rows += [(name, clocks, f"{clocks / period:.0%}") for name, clocks in report["units"].items()]
    return table(rows)


def masked(report):
    rows = [("warp", "masked blocks", "instructions each", "exponentials each")]
    rows += [(m["warp"], m["blocks"], m["instructions"], m["exponentials"]) for m in report["masked_blocks"]]
    if len(rows) > 1:
        mean = sum(m["blocks"] * m["instructions"] for m in report["masked_blocks"]) / sum(m["blocks"] for m in report["masked_blocks"])
        rows.append(("mean", "", round(mean, 1), ""))
    return table(rows)


def outside(report):
    rows = [("beside its loops, a work tile", "warp", "instructions", "clocks at least")]
    return table(rows + [(o["role"], o["warp"], o["instructions"], o["clocks"]) for o in report["outside"]])


def registers(report):
    rows = [("code of", "registers", "setmaxnreg")]
    for r in report["registers"]:
        rows.append((", ".join(r["roles"]) or "no role", r["registers"], "launch" if r["setmaxnreg"] is None else r["setmaxnreg"]))
    spills = report["spills"]
    local = [f"{s['opcode']} at {s['address']:#x}{' in a loop of ' + (', '.join(s['roles']) or 'no role') if s['in_loop'] else ''}"
             for s in spills["local"]]
    return table(rows) + f"\nstack {spills['stack_bytes']} bytes; loads and stores of local memory: " + ("; ".join(local) or "none")


def backward(report):
    """Of one block of 128 x 128 scores."""
    b = report["backward"]
    rows = [("unit", "clocks a block", "of the period")]
    rows += [(name, clocks, f"{clocks / b['period']:.0%}") for name, clocks in b["units"].items()]
    code, shared = b["instructions"], ", ".join(f"{name} {clocks}" for name, clocks in b["shared"].items())
    chain = " -> ".join(f"{name} {clocks}" for name, clocks in b["chain"].items())
    return [f"head_dim {'x'.join(map(str, b['head_dim']))}{', pairs of CTAs' if b['pair_of_ctas'] else ''}, order of products \"{b['layout']}\", "
            f"blocks of Q, dO and what a pair loads again: {', '.join(map(str, b['stages']))}",
            f"a block: {' and '.join(map(str, code['compute']))} instructions of a compute warp of either warpgroup, {code['reduce']} of a reducing warp, "
            f"{code['mma']} of the one that issues; {b['reduce_bytes']} bytes added in global memory", table(rows), "shared memory: " + shared,
            f"from S to each: {chain}",
            f"period {b['period']}, {b['share']:.1%} of the tensor core's. Rates and latencies are assumed (rates.py)."]


def text(report):
    roles = "roles as the kernel's lines name them" if report["roles"] == "told" else "roles guessed from what loops do"
    parts = [f"{report['kernel']}, {report['arch']}; {roles}", loops(report)]
    if "backward" in report:
        parts += backward(report)
    elif "chain" in report:
        chain = report["chain"]
        parts.append(f"head_dim {'x'.join(map(str, report['head_dim']))}{', pairs of CTAs' if report['pair_of_ctas'] else ''}, Q tiles {report['q_tiles']}")
        parts += [schedulers(report), units(report)]
        if report.get("masked_blocks"):
            parts.append(masked(report))
        if report.get("outside"):
            parts.append(outside(report))
        parts.append(f"W {chain['w']} clocks, period {chain['period']}"
                     + (f" (masked blocks {chain['masked_period']})" if "masked_period" in chain else "")
                     + f", {chain['share']:.1%} of the tensor core's; a long sequence {chain['share_of_clocks']:.1%}, "
                       f"{chain['share_of_nominal']:.1%} of 2.25e15 FLOP/s. Rates and latencies are assumed (rates.py).")
    else:
        parts.append("no loop found of: " + ", ".join(report["missing"]))
    return "\n\n".join(parts + [registers(report)]) + "\n"
