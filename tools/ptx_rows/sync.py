"""Barriers, fences and mbarriers (PTX ISA 9.7.13.1 to .4, 9.7.13.15)."""

import itertools

from .core import Family, make_data, product, u32s, words_of

DATA = words_of(make_data("bits:1024"))
MY_WORD = "shl.b32 %r20, %t, 2; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20; ld.global.b32 %r1, [%d1]; mov.u32 %r3, cell; add.u32 %r4, %r3, %r20;"
CELL = ".shared .align 8 .b32 cell[128];"
BARS = ["bar", "bar.cta"]
BARRIERS = ["barrier", "barrier.cta"]


def spellings(what, tail=""):
    """The spellings of a barrier instruction: bar is aligned by itself."""
    return product(BARS, what, tail) + product(BARRIERS, what, ["", "aligned"], tail)


def add_barriers(family):
    # 128 threads write a word each and read that of the thread opposite.
    exchange = "xor.b32 %r5, %r20, 508; add.u32 %r6, %r3, %r5; ld.shared.b32 %r7, [%r6]; st.global.b32 [%d2], %r7;"
    family.kernel("sync", f"{MY_WORD} st.shared.b32 [%r4], %r1;\n$form $a$b;\n{exchange}", CELL)
    swapped = u32s(*reversed(DATA[:128]))
    for a, b in (("0", ""), ("15", ""), ("3", ", 128")):
        family.row("sync", spellings("sync"), swapped, "9.7.13.1: all threads' writes before it are seen after it",
                   a=a, b=b, block=128)
    family.kernel("arrive", f"""{MY_WORD} setp.lt.u32 %p1, %t, 64; @%p1 bra producer;
barrier.sync.aligned 1, 128; add.u32 %r5, %r4, -256; ld.shared.b32 %r7, [%r5]; st.global.b32 [%d2], %r7; bra done;
producer: st.shared.b32 [%r4], %r1; $form 1, 128; st.global.b32 [%d2], %r1;
done:""", CELL)
    family.row("arrive", spellings("arrive"), u32s(*DATA[:64], *DATA[:64]), "9.7.13.1: one half arrives, the other waits", block=128)
    flags = [v % 3 == 0 for v in DATA[:128]]
    family.kernel("popc", f"{MY_WORD} rem.u32 %r8, %r1, 3; setp.eq.u32 %p1, %r8, 0;\n$form %r9, 4$b, $N%p1; st.global.b32 [%d2], %r9;", CELL)
    family.kernel("logic", f"{MY_WORD} setp.lt.u32 %p1, %t, $limit;\n$form %p2, 4$b, $N%p1; selp.b32 %r9, 1, 0, %p2; st.global.b32 [%d2], %r9;", CELL)
    for b, negated in itertools.product(("", ", 128"), (False, True)):
        count = sum(f != negated for f in flags)
        n = "!" if negated else ""
        family.row("popc", spellings("red.popc", "u32"), u32s(*[count] * 128), "9.7.13.1", b=b, N=n, block=128)
        for limit, op in itertools.product((0, 1, 127, 128), ("and", "or")):
            inputs = [(i < limit) != negated for i in range(128)]
            want = all(inputs) if op == "and" else any(inputs)
            family.row("logic", spellings(f"red.{op}", "pred"), u32s(*[want] * 128), "9.7.13.1", limit=limit, b=b, N=n, block=128)


def add_clusters(family):
    """Each CTA of a cluster of 4 writes into the next one's shared memory."""
    family.kernel("cluster", f"""{MY_WORD} mov.u32 %r8, %cluster_ctarank; add.u32 %r9, %r8, 1; and.b32 %r9, %r9, 3; $first; $wait0;
mapa.shared::cluster.u32 %r10, %r4, %r9; mad.lo.u32 %r11, %r8, 100, %t; st.shared::cluster.b32 [%r10], %r11;
$arrive; $wait; ld.shared.b32 %r12, [%r4]; mad.lo.u32 %r13, %r8, 128, %r20; cvt.u64.u32 %d3, %r13; add.s64 %d3, %out, %d3; st.global.b32 [%d3], %r12;
$arrive; $wait;""", CELL)
    want = u32s(*[100 * ((rank + 3) % 4) + t for rank in range(4) for t in range(32)])
    for a in ("", ".aligned"):
        for sem in ("", ".release"):
            form = f"barrier.cluster.arrive{sem}{a}"
            family.row("cluster", form, want, "9.7.13.3: writes before arrive are seen after wait in the whole cluster",
                       arrive=form, wait="barrier.cluster.wait" + a, wait0="barrier.cluster.wait.acquire" + a,
                       first="barrier.cluster.arrive.release" + a, cluster=4)
        for sem in ("", ".acquire"):
            form = f"barrier.cluster.wait{sem}{a}"
            family.row("cluster", form, want, "9.7.13.3", arrive="barrier.cluster.arrive" + a, wait=form, wait0=form,
                       first="barrier.cluster.arrive" + a, cluster=4)
        form = f"barrier.cluster.arrive.relaxed{a}"
        family.row("cluster", form, want, "9.7.13.3: relaxed, with a fence before it", arrive=f"fence.acq_rel.cluster; {form}",
                   wait="barrier.cluster.wait.acquire" + a, wait0="barrier.cluster.wait" + a, first=form, cluster=4)


def add_fences(family):
    # Thread 0 writes and then sets a flag; thread 32 waits for the flag and reads.
    family.kernel("fence", """mov.u32 %r3, cell; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.b32 [%r3+4], 0; bar.sync 0; @%p1 bra writer; setp.ne.u32 %p2, %t, 32; @%p2 bra done;
spin: ld.relaxed.cluster.shared.b32 %r5, [%r3+4]; setp.eq.u32 %p3, %r5, 0; @%p3 bra spin; $second; ld.shared.b32 %r6, [%r3]; st.global.b32 [%out], %r6; bra done;
writer: st.shared.b32 [%r3], 77; $first; st.relaxed.cluster.shared.b32 [%r3+4], 1;
done:""", CELL)
    both = product("fence", ["", "sc", "acq_rel"], ["cta", "cluster", "gpu", "sys"]) + ["membar.cta", "membar.gl", "membar.sys"]
    for form in both:
        family.row("fence", form, u32s(77), "9.7.13.4: what was written before a fence and a flag is read after the flag and a fence",
                   first=form, second=form, block=64)
    for scope in ("cta", "cluster", "gpu", "sys"):
        family.row("fence", f"fence.release.{scope}", u32s(77), "9.7.13.4", first=f"fence.release.{scope}", second=f"fence.acq_rel.{scope}", block=64)
        family.row("fence", f"fence.acquire.{scope}", u32s(77), "9.7.13.4", first=f"fence.acq_rel.{scope}", second=f"fence.acquire.{scope}", block=64)
    family.row("fence", "fence.release.sync_restrict::shared::cta.cluster", u32s(77), "9.7.13.4",
               first="fence.release.sync_restrict::shared::cta.cluster", second="fence.acq_rel.cluster", block=64)
    family.row("fence", "fence.acquire.sync_restrict::shared::cluster.cluster", u32s(77), "9.7.13.4",
               first="fence.acq_rel.cluster", second="fence.acquire.sync_restrict::shared::cluster.cluster", block=64)
    # Plain writes, a proxy fence, and a bulk copy that reads them.
    family.kernel("proxy", """mov.u32 %r3, cell; st.shared.v4.b32 [%r3], {1, 2, 3, 4}; $form; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r3], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;""", ".shared .align 16 .b32 cell[4];")
    family.row("proxy", ["fence.proxy.async", "fence.proxy.async.shared::cta", "fence.proxy.async.shared::cluster", "membar.proxy.async",
                         "membar.proxy.async.shared::cta", "membar.proxy.async.shared::cluster"],
               u32s(1, 2, 3, 4), "9.7.13.4 and 8.5: a proxy fence between generic writes and an async read", block=1)
    family.kernel("proxy_global", """st.global.v4.b32 [%out], {5, 6, 7, 8}; mov.u32 %r3, cell; mov.u32 %r4, bar; mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
$form; mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%out], 16, [%r4];
wait: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0; @!%p1 bra wait; ld.shared.v4.b32 {%r5,%r6,%r7,%r8}, [%r3]; st.global.v4.b32 [%out+16], {%r5,%r6,%r7,%r8};""",
                  ".shared .align 16 .b32 cell[4]; .shared .align 8 .b64 bar;")
    family.row("proxy_global", ["fence.proxy.async.global", "membar.proxy.async.global"], u32s(5, 6, 7, 8, 5, 6, 7, 8),
               "9.7.13.4 and 8.5", block=1)
    family.kernel("proxy_other", "st.global.b32 [%out], 9; $form; ld.global.b32 %r1, [%out]; st.global.b32 [%out+4], %r1;")
    family.row("proxy_other", ["fence.proxy.alias", "membar.proxy.alias"] + product("fence.proxy.tensormap::generic.release", ["cta", "cluster", "gpu", "sys"])
               + ["fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
                  "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster"], u32s(9, 9), "9.7.13.4: no value changes", block=1)
    family.kernel("proxy_map", "st.global.b32 [%out], 9; cvta.param.u64 %d5, map; $form [%d5], 128; ld.global.b32 %r1, [%out]; st.global.b32 [%out+4], %r1;")
    family.row("proxy_map", product("fence.proxy.tensormap::generic.acquire", ["cta", "cluster", "gpu", "sys"]), u32s(9, 9),
               "9.7.13.4: no value changes", block=1)


BAR = ".shared .align 8 .b64 bar;"
SPACES = ["", ".shared", ".shared::cta"]
# The barrier as a shared address, and as the operand that the space asks for.
START = "mov.u32 %r3, bar; cvt.u64.u32 %d5, %r3; cvta.shared.u64 %d6, %d5; mbarrier.init.shared::cta.b64 [%r3], $count; fence.mbarrier_init.release.cluster;"
DONE = "selp.b32 %r9, 1, 0, %p1; st.global.b32 [%out], %r9;"


def barrier_operand(space):
    return "%d5" if space else "%d6"


def add_mbarriers(family):
    ordered = ["", ".release.cta", ".release.cluster", ".relaxed.cta", ".relaxed.cluster"]
    family.kernel("init", f"mov.u32 %r3, bar; cvt.u64.u32 %d5, %r3; cvta.shared.u64 %d6, %d5; $form [$A], 3; mbarrier.arrive.shared.b64 %d7, [%r3]; "
                  "mbarrier.pending_count.b64 %r5, %d7; mbarrier.arrive.shared.b64 %d8, [%r3]; $count %r6, %d8; st.global.v2.b32 [%out], {%r5,%r6};", BAR)
    pending = "mbarrier.pending_count.b64"
    for space in SPACES:
        family.row("init", f"mbarrier.init{space}.b64", u32s(3, 2), "9.7.13.15.9 mbarrier.init; the count left before each arrive",
                   A=barrier_operand(space), count=pending, block=1)
    family.kernel("pending", f"{START} mbarrier.arrive.shared.b64 %d7, [%r3], 2; $form %r5, %d7; mbarrier.arrive.shared.b64 %d8, [%r3]; $form %r6, %d8; st.global.v2.b32 [%out], {{%r5,%r6}};", BAR)
    family.row("pending", pending, u32s(5, 3), "9.7.13.15.17 mbarrier.pending_count", count=5, block=1)
    # Invalidated memory is plain memory again.
    family.kernel("inval", f"{START} $form [$A]; st.shared.b32 [%r3], 5; ld.shared.b32 %r4, [%r3]; st.global.b32 [%out], %r4;", BAR)
    for space in SPACES:
        family.row("inval", f"mbarrier.inval{space}.b64", u32s(5), "9.7.13.15.10", A=barrier_operand(space), count=1, block=1)

    # Arrivals: before the last one the phase is incomplete, after it complete.
    check = "mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 0; selp.b32 %r8, 1, 0, %p1;"
    family.kernel("arrive", f"{START} $form $D, [$A]$N; {check} st.global.b32 [%out], %r8; mbarrier.arrive.shared.b64 _, [%r3]; {check} st.global.b32 [%out+4], %r8;", BAR)
    family.kernel("arrive_cluster", f"{START} mov.u32 %r7, 0; mapa.shared::cluster.u32 %r6, %r3, %r7; $form _, [%r6]$N; {check} st.global.b32 [%out], %r8; "
                  f"mbarrier.arrive.shared.b64 _, [%r3]; {check} st.global.b32 [%out+4], %r8;", BAR)
    for op, sem in itertools.product(("arrive", "arrive_drop"), ordered):
        for space in SPACES:
            for count, n, d in ((2, "", "%d7"), (2, "", "_"), (4, ", 3", "%d7")):
                family.row("arrive", f"mbarrier.{op}{sem}{space}.b64", u32s(0, 1), "9.7.13.15.13 and .14: the phase completes with the last arrival",
                           A=barrier_operand(space), D=d, N=n, count=count, block=1)
        for count, n in ((2, ""), (4, ", 3")):
            family.row("arrive_cluster", f"mbarrier.{op}{sem}.shared::cluster.b64", u32s(0, 1), "9.7.13.15.13 and .14", N=n, count=count, block=1)
    for op, sem in itertools.product(("arrive", "arrive_drop"), ("", ".release.cta")):
        for space in SPACES:
            family.row("arrive", f"mbarrier.{op}.noComplete{sem}{space}.b64", u32s(0, 1), "9.7.13.15.13 and .14", A=barrier_operand(space),
                       D="%d7", N=", 1", count=2, block=1)
    # After arrive_drop of one, the next phase needs one arrival less.
    family.kernel("drop", f"{START} $form _, [%r3]; mbarrier.arrive.shared.b64 _, [%r3]; mbarrier.arrive.shared.b64 _, [%r3]; mbarrier.arrive.shared.b64 _, [%r3]; "
                  f"mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 1; selp.b32 %r8, 1, 0, %p1; st.global.b32 [%out], %r8; mbarrier.arrive.shared.b64 _, [%r3]; "
                  f"mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 1; {DONE.replace('[%out]', '[%out+4]')}", BAR)
    family.row("drop", "mbarrier.arrive_drop.shared.b64", u32s(0, 1), "9.7.13.15.14: the expected count falls by one for the next phase", count=3, block=1)
    # Bytes: the phase waits for them too.
    tail = f"{check} st.global.b32 [%out], %r8; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r3], 48; {check} st.global.b32 [%out+4], %r8; " \
           f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r3], 16; {check} st.global.b32 [%out+8], %r8;"
    family.kernel("expect_arrive", f"{START} $form $D, [$A], 64; mbarrier.arrive.shared.b64 _, [%r3]; {tail}", BAR)
    family.kernel("expect_arrive_cluster", f"{START} mov.u32 %r7, 0; mapa.shared::cluster.u32 %r6, %r3, %r7; $form _, [%r6], 64; mbarrier.arrive.shared.b64 _, [%r3]; {tail}", BAR)
    origin = "9.7.13.15.5: a phase completes when no arrival and no byte is pending"
    for op, sem in itertools.product(("arrive", "arrive_drop"), ordered):
        for space, d in itertools.product(SPACES, ("%d7", "_")):
            family.row("expect_arrive", f"mbarrier.{op}.expect_tx{sem}{space}.b64", u32s(0, 0, 1), origin, A=barrier_operand(space), D=d, count=2, block=1)
        family.row("expect_arrive_cluster", f"mbarrier.{op}.expect_tx{sem}.shared::cluster.b64", u32s(0, 0, 1), origin, count=2, block=1)
    family.kernel("expect", f"{START} mov.u32 %r7, 0; mapa.shared::cluster.u32 %r6, %r3, %r7; cvt.u64.u32 %d8, %r6; $form [$A], 64; mbarrier.arrive.shared.b64 _, [%r3]; {tail}", BAR)
    family.kernel("complete", f"{START} mov.u32 %r7, 0; mapa.shared::cluster.u32 %r6, %r3, %r7; cvt.u64.u32 %d8, %r6; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 64; "
                  f"$form [$A], 63; {check} st.global.b32 [%out], %r8; $form [$A], 1; {check} st.global.b32 [%out+4], %r8;", BAR)
    for sem, space in itertools.product(("", ".relaxed.cta", ".relaxed.cluster"), SPACES + [".shared::cluster"]):
        operand = "%d8" if "cluster" in space else barrier_operand(space)
        family.row("expect", f"mbarrier.expect_tx{sem}{space}.b64", u32s(0, 0, 1), origin, A=operand, count=1, block=1)
        family.row("complete", f"mbarrier.complete_tx{sem}{space}.b64", u32s(0, 1), origin, A=operand, count=1, block=1)
    add_waits(family)


def add_waits(family):
    result = "selp.b32 %r8, 1, 0, %p2; selp.b32 %r9, 1, 0, %p3; st.global.v2.b32 [%out], {%r8,%r9};"
    family.kernel("test_state", f"{START} mbarrier.arrive.shared.b64 %d7, [%r3]; $form %p2, [$A], %d7; mbarrier.arrive.shared.b64 _, [%r3]; $form %p3, [$A], %d7; {result}", BAR)
    family.kernel("test_parity", f"{START} mbarrier.arrive.shared.b64 _, [%r3]; $form %p2, [$A], 0; mbarrier.arrive.shared.b64 _, [%r3]; $form %p3, [$A], 0; "
                  f"{result} $form %p2, [$A], 1; mbarrier.arrive.shared.b64 _, [%r3], 2; $form %p3, [$A], 1; {result.replace('[%out]', '[%out+8]')}", BAR)
    # The other warp writes and arrives while this one waits.
    family.kernel("try", f"""mov.u32 %r3, bar; mov.u32 %r4, cell; cvt.u64.u32 %d5, %r3; cvta.shared.u64 %d6, %d5; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r3], 2; bar.sync 0;
@%p1 mbarrier.arrive.shared.b64 %d7, [%r3]; @%p1 bra wait; setp.ne.u32 %p1, %t, 32; @%p1 bra done; st.shared.b32 [%r4], 41; mbarrier.arrive.shared.b64 _, [%r3]; bra done;
wait: $form %p2, [$A], $S$H; @!%p2 bra wait; ld.shared.b32 %r5, [%r4]; st.global.b32 [%out], %r5;
done:""", BAR + " .shared .b32 cell;")
    for sem, space in itertools.product(("", ".acquire.cta", ".acquire.cluster", ".relaxed.cta", ".relaxed.cluster"), SPACES):
        a = barrier_operand(space)
        family.row("test_state", f"mbarrier.test_wait{sem}{space}.b64", u32s(0, 1), "9.7.13.15.16", A=a, count=2, block=1)
        family.row("test_parity", f"mbarrier.test_wait.parity{sem}{space}.b64", u32s(0, 1, 0, 1), "9.7.13.15.16: the parity of the current phase is not done", A=a, count=2, block=1)
        if "relaxed" in sem:
            continue
        for hint, (parity, state) in itertools.product(("", ", 1000"), ((".parity", "0"), ("", "%d7"))):
            family.row("try", f"mbarrier.try_wait{parity}{sem}{space}.b64", u32s(41), "9.7.13.15.16: what was written before the arrival is seen after the wait",
                       A=a, S=state, H=hint, block=64)
    family.kernel("try_relaxed", f"""mov.u32 %r3, bar; cvt.u64.u32 %d5, %r3; cvta.shared.u64 %d6, %d5; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared::cta.b64 [%r3], 2; bar.sync 0;
@%p1 mbarrier.arrive.shared.b64 %d7, [%r3]; @%p1 bra wait; setp.ne.u32 %p1, %t, 32; @%p1 bra done; mbarrier.arrive.shared.b64 _, [%r3]; bra done;
wait: $form %p2, [$A], $S; @!%p2 bra wait; st.global.b32 [%out], 1;
done:""", BAR)
    for scope, space, (parity, state) in itertools.product(("cta", "cluster"), SPACES, ((".parity", "0"), ("", "%d7"))):
        family.row("try_relaxed", f"mbarrier.try_wait{parity}.relaxed.{scope}{space}.b64", u32s(1), "9.7.13.15.16", A=barrier_operand(space), S=state, block=64)


def families():
    barriers = Family("barriers", "bar, barrier, barrier.cluster, fences (PTX ISA 9.7.13.1, .3, .4)")
    add_barriers(barriers)
    add_clusters(barriers)
    add_fences(barriers)
    mbarriers = Family("mbarriers", "mbarrier (PTX ISA 9.7.13.15)")
    add_mbarriers(mbarriers)
    return [barriers, mbarriers]
