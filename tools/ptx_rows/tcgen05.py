"""tcgen05 (PTX ISA 9.7.16). Values are small whole numbers, so that layouts alone decide."""

import itertools
from operator import mul

from .core import Family, decode, encode, make_data, product, u32s
from .products import NUMBERS

CUTE = "CUTLASS include/cute/atom/copy_traits_sm100.hpp: ValID and DstLayout of SM100_TMEM_LOAD_*"
HEAD = ".shared .align 1024 .b8 tile[$tile]; .shared .align 8 .b64 bar; .shared .align 4 .b32 slot;"
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
HALVES = 64  # immHalfSplitoff of .16x32bx2

ALLOC = """mov.u32 %r1, slot; mov.u32 %r2, bar; setp.lt.u32 %p1, %t, 32; setp.eq.u32 %p2, %t, 0; @!%p1 bra allocated; tcgen05.alloc.cta_group::$group.sync.aligned.shared::cta.b32 [%r1], 512;
tcgen05.relinquish_alloc_permit.cta_group::$group.sync.aligned; allocated: @%p2 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;"""
MEET = "tcgen05.fence::before_thread_sync; $meet; tcgen05.fence::after_thread_sync;"
MINE = "ld.shared.b32 %r10, [%r1]; and.b32 %r11, %t, 96; shl.b32 %r11, %r11, 16; add.u32 %r11, %r10, %r11;"
FREE = MEET + " @!%p1 bra freed; tcgen05.dealloc.cta_group::$group.sync.aligned.b32 %r10, 512; freed:"
BAR, CLUSTER = "bar.sync 0", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned"


def cell(shape, thread, register):
    """Row and column of a thread's register, from the layouts named in CUTE."""
    t, r = thread, register
    return {"32x32b": lambda: (t, r), "16x64b": lambda: ((t >> 2) + 8 * (t & 1), 2 * r + (t >> 1 & 1)),
            "16x128b": lambda: ((t >> 2) + 8 * (r & 1), 4 * (r >> 1) + (t & 3)),
            "16x256b": lambda: ((t >> 2) + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)), "16x32bx2": lambda: (t & 15, r)}[shape]()


def columns_of(shape, thread, register, packed):
    """The columns whose cells (packed: low halves) the register holds."""
    row, column = cell(shape, thread, register)
    columns = [2 * column, 2 * column + 1] if packed else [column]
    return row, [c + (HALVES * (thread >> 4) if shape == "16x32bx2" else 0) for c in columns]


def transfers():
    for shape, n in itertools.product(REGISTERS, (1, 2, 4, 8, 16, 32, 64, 128)):
        if n * REGISTERS[shape] <= 128 and not (shape == "16x32bx2" and n > 64):
            yield shape, n, n * REGISTERS[shape]


def add_loads(family):
    """All 512 columns get lane << 16 | column; then a load."""
    fill = "mov.u32 %r12, 0; mov.u32 %r14, %t; shl.b32 %r14, %r14, 16; again: add.u32 %r13, %r11, %r12; or.b32 %r15, %r14, %r12; <<64|add.u32 %v#, %r15, #;>> " \
           "tcgen05.st.sync.aligned.32x32b.x64.b32 [%r13], {<<64|%v#,>>}; add.u32 %r12, %r12, 64; setp.lt.u32 %p3, %r12, 512; @%p3 bra again; tcgen05.wait::st.sync.aligned;"
    begin = f".reg .b32 %v<128>;\n{ALLOC} {MEET} {MINE}\n{fill}\nadd.u32 %r16, %r11, $lane;"
    end = f"tcgen05.wait::ld.sync.aligned; mul.lo.u32 %r20, %t, $stride; cvt.u64.u32 %d1, %r20; add.s64 %d1, %out, %d1;\n<<$regs|st.global.b32 [%d1+#4], %v#;>> $S {FREE}"
    family.kernel("load", f"{begin} $form {{<<$regs|%v#,>>}}, [%r16]$H;\n{end}", HEAD)
    family.kernel("load_reduced", f"{begin} $O $form {{<<$regs|%v#,>>}}, %r30, [%r16]$H;\n{end}", HEAD)
    common = dict(tile=16, group=1, meet=BAR, block=128, arch="sm_100a")
    for (shape, n, regs), packed, lane in itertools.product(transfers(), (False, True), (0, 16)):
        if lane and shape == "32x32b" or (packed and shape == "16x32bx2" and n > 32):
            continue
        want = b""
        for thread in range(128):
            for r in range(regs):
                row, columns = columns_of(shape, thread % 32, r, packed)
                row += thread // 32 * 32 + lane
                want += u32s(row << 16 | columns[0]) if not packed else u32s(columns[0] | columns[1] << 16)
        family.row("load", f"tcgen05.ld.sync.aligned.{shape}.x{n}{'.pack::16b' * packed}.b32", want, CUTE, lane=lane << 16, regs=regs, stride=4 * regs,
                   H=f", {HALVES}" if shape == "16x32bx2" else "", **common)
    for shape, n in itertools.product(("32x32b", "16x32bx2"), (2, 4, 8, 16, 32, 64, 128)):
        if shape == "16x32bx2" and n > 64:
            continue
        for op, kind, absolute, nan in itertools.product(("min", "max"), ("u32", "s32", "f32"), (False, True), (False, True)):
            if kind != "f32" and (absolute or nan):
                continue
            want = b""
            for thread in range(128):
                values = []
                for r in range(n):
                    row, columns = columns_of(shape, thread % 32, r, False)
                    values.append(row + thread // 32 * 32 << 16 | columns[0])
                want += u32s(*values, (min if op == "min" else max)(values))  # positive: one order for all types
            form = ".".join(["tcgen05.ld.red.sync.aligned", shape, f"x{n}", op] + ["abs"] * absolute + ["NaN"] * nan + [kind])
            family.row("load_reduced", form, want, CUTE + "; 9.7.16.8.2: the second result is the registers' minimum or maximum", lane=0, regs=n, stride=4 * n + 4,
                       S=f"st.global.b32 [%d1+{4 * n}], %r30;", H=f", {HALVES}" if shape == "16x32bx2" else "", **{**common, "arch": "sm_103a"})


def add_stores(family):
    """Cells start as 0; a store; then the columns that it reaches are read, low halves only where halves are stored."""
    clear = "<<64|mov.b32 %v#, 0;>> mov.u32 %r12, 0; again: add.u32 %r13, %r11, %r12; tcgen05.st.sync.aligned.32x32b.x64.b32 [%r13], {<<64|%v#,>>}; " \
            "add.u32 %r12, %r12, 64; setp.lt.u32 %p3, %r12, 512; @%p3 bra again; tcgen05.wait::st.sync.aligned;"
    family.kernel("store", f""".reg .b32 %v<128>;
{ALLOC} {MEET} {MINE}
{clear}
mov.u32 %r14, %t; shl.b32 %r15, %r14, 16; or.b32 %r14, %r15, %r14; <<$regs|add.u32 %v#, %r14, #;>> $form [%r11], $H{{<<$regs|%v#,>>}}; tcgen05.wait::st.sync.aligned;
mul.lo.u32 %r20, %t, $stride; cvt.u64.u32 %d1, %r20; add.s64 %d1, %out, %d1; mov.u32 %r12, 0;
read: add.u32 %r13, %r11, %r12; tcgen05.ld.sync.aligned.32x32b.x4.b32 {{<<4|%v#,>>}}, [%r13]; tcgen05.wait::ld.sync.aligned; <<4|and.b32 %v#, %v#, $mask; st.global.b32 [%d1+#4], %v#;>>
add.u32 %r12, %r12, 4; add.s64 %d1, %d1, 16; setp.lt.u32 %p3, %r12, $span; @%p3 bra read; {FREE}""", HEAD)
    for (shape, n, regs), packed in itertools.product(transfers(), (False, True)):
        if packed and shape == "16x32bx2" and n > 32:
            continue
        cells = {}
        for thread, r in itertools.product(range(128), range(regs)):
            row, columns = columns_of(shape, thread % 32, r, packed)
            value = (thread << 16 | thread) + r
            for i, column in enumerate(columns):
                cells[thread // 32 * 32 + row, column] = value >> 16 * i & 0xFFFF if packed else value
        span = (max(c for _, c in cells) // 4 + 1) * 4
        want = u32s(*(cells.get((row, column), 0) for row in range(128) for column in range(span)))
        family.row("store", f"tcgen05.st.sync.aligned.{shape}.x{n}{'.unpack::16b' * packed}.b32", want, CUTE, tile=16, group=1, meet=BAR, block=128, arch="sm_100a",
                   regs=regs, span=span, stride=4 * span, mask=0xFFFF if packed else 0xFFFFFFFF, H=f"{HALVES}, " if shape == "16x32bx2" else "")


# --- mma ---------------------------------------------------------------------------------------------------------------

TYPES = {"f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}, "i8": {"u8": 0, "s8": 1}}
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "u8": 8, "s8": 8}
MMA_ORIGIN = "descriptors as in CUTLASS include/cute/arch/mma_sm100_desc.hpp, D and A in tensor memory as in mma_traits_sm100.hpp; sums of whole numbers"


class Side:
    """Where A or B lies in shared memory: CUTLASS's canonical layouts of UMMA descriptors."""

    def __init__(self, kind, rows, major="k", w=1):
        self.kind, self.rows, self.major, self.w = kind, rows, major, w
        self.element = max(1, WIDTH[kind] // 8)
        self.k = 32 // self.element
        self.per = 16 // self.element
        if major == "k":
            self.stride, self.leading = 128 * w, rows * 16 if w == 1 else 16
            self.bytes = rows * 32 if w == 1 else rows * 16 * w
        elif w == 1:
            self.leading, self.stride = 128, 128 * (self.k // 8)
            self.bytes = rows * self.k * self.element
        else:
            self.stride, self.leading = 128 * w, 128 * w * (self.k // 8)
            self.bytes = rows * self.k * self.element

    def chunk(self, mn, k):
        """The byte of the 16-byte chunk that holds an element."""
        w, per = self.w, self.per
        if self.major == "k":
            at = mn % 8 * 16 * w + mn // 8 * self.stride + (k // per * self.leading if w == 1 else k // per * 16)
        elif w == 1:
            at = mn // per * self.stride + k % 8 * 16 + k // 8 * self.leading
        else:
            i = mn // per
            at = i % w * 16 + i // w * self.leading + k % 8 * 16 * w + k // 8 * self.stride
        return at ^ ((at >> 7 & w - 1) << 4)

    def value(self, data, mn, k):
        at, inner = self.chunk(mn, k), (k if self.major == "k" else mn) % self.per
        width = WIDTH[self.kind]
        bits = int.from_bytes(data[at:at + 16], "little") >> inner * width & (1 << width) - 1
        return decode(self.kind, bits)

    def descriptor(self):
        return self.leading >> 4 << 16 | self.stride >> 4 << 32 | 1 << 46 | {1: 0, 2: 6, 4: 4, 8: 2}[self.w] << 61


def values_for(kinds):
    """A data description whose elements are small numbers in every byte format among the kinds."""
    bytes_ = [k for k in kinds if WIDTH[k] == 8]
    if not bytes_:
        wide = [k for k in kinds if WIDTH[k] > 8]
        if not wide:
            return "bits:{}"
        digits = WIDTH[wide[0]] // 4
        return "pick:{}:" + ",".join(f"{encode(wide[0], x):0{digits}x}" for x in NUMBERS[wide[0]])
    good = [b for b in range(256) if all(fits(k, b) for k in bytes_)]
    return "pick:{}:" + ",".join(f"{b:02x}" for b in good)


def fits(kind, bits):
    if kind in ("s8", "u8"):
        return bits in (0, 1, 2, 3, 127, 128, 200, 255)
    return abs(decode(kind, bits)) in (0, 0.5, 1, 2, 3)


def add_mma_kernel(family):
    family.kernel("mma", f""".reg .b32 %v<32>; .reg .b32 %rank;
{ALLOC} mov.u32 %r3, tile; mov.u32 %rank, %cluster_ctarank; shl.b32 %r4, %t, 2; mul.lo.u32 %r5, %rank, $tile; add.u32 %r5, %r5, %r4; mov.u32 %r6, %r4;
fill: cvt.u64.u32 %d1, %r5; add.s64 %d1, %in, %d1; ld.global.b32 %r7, [%d1]; add.u32 %r8, %r3, %r6; st.shared.b32 [%r8], %r7; add.u32 %r5, %r5, 512; add.u32 %r6, %r6, 512; setp.lt.u32 %p3, %r6, $tile; @%p3 bra fill;
fence.proxy.async.shared::cta; {MEET} {MINE}
<<32|mov.b32 %v#, $start;>> mov.u32 %r12, 0; again: add.u32 %r13, %r11, %r12; tcgen05.st.sync.aligned.32x32b.x32.b32 [%r13], {{<<32|%v#,>>}}; add.u32 %r12, %r12, 32; setp.lt.u32 %p3, %r12, 256; @%p3 bra again;
and.b32 %r14, %t, $lanes; mad.lo.u32 %r14, %rank, 128, %r14; mad.lo.u32 %r14, %r14, 32, $aoffset; cvt.u64.u32 %d2, %r14; add.s64 %d2, %in, %d2; <<8|ld.global.b32 %v#, [%d2+#4];>>
add.u32 %r13, %r11, 256; tcgen05.st.sync.aligned.32x32b.x8.b32 [%r13], {{<<8|%v#,>>}}; tcgen05.wait::st.sync.aligned; {MEET}
shr.u32 %r15, %r3, 4; and.b32 %r15, %r15, 0x3fff; cvt.u64.u32 %d3, %r15; or.b64 %d4, %d3, $adesc; add.u32 %r16, %r3, $boffset; shr.u32 %r16, %r16, 4; and.b32 %r16, %r16, 0x3fff; cvt.u64.u32 %d5, %r16; or.b64 %d6, %d5, $bdesc;
add.u32 %r17, %r10, 256; mov.u32 %r18, $idesc; mov.b16 %h1, 3; setp.ne.b32 %p4, $accumulate, 0; cvt.u64.u32 %d7, %r2; or.b32 %r19, %t, %rank; setp.ne.u32 %p5, %r19, 0; @%p5 bra wait;
$form [%r10], $A, %d6, %r18, $M%p4$H; $commit;
wait: mbarrier.try_wait.parity.shared.b64 %p6, [%r2], 0; @!%p6 bra wait; tcgen05.fence::after_thread_sync;
mad.lo.u32 %r20, %rank, 128, %t; mul.lo.u32 %r20, %r20, $stride; cvt.u64.u32 %d1, %r20; add.s64 %d1, %out, %d1; mov.u32 %r12, 0;
read: add.u32 %r13, %r11, %r12; tcgen05.ld.sync.aligned.32x32b.x8.b32 {{<<8|%v#,>>}}, [%r13]; tcgen05.wait::ld.sync.aligned; <<8|and.b32 %v#, %v#, $mask; st.global.b32 [%d1+#4], %v#;>>
add.u32 %r12, %r12, 8; add.s64 %d1, %d1, 32; setp.lt.u32 %p3, %r12, $columns; @%p3 bra read; {FREE}""", HEAD)


def place(m_total, group, n_total, m, n):
    """CTA, lane and column of D(m, n): layouts D, F, A, B of mma_traits_sm100.hpp."""
    if group == 1:
        return 0, m if m_total == 128 else m % 16 + m // 16 * 32, n
    if m_total == 256:
        return m // 128, m % 128, n
    return m // 64, m % 64 + 64 * (n // (n_total // 2)), n % (n_total // 2)


def mma_row(family, forms, kind, a, b, d, m, n, group=1, ts=False, majors=("k", "k"), w=(1, 1), accumulate=True, disabled=None, scale=None, negate=(0, 0), **more):
    rows_a, rows_b = m // group, n // group
    side_a, side_b = Side(a, rows_a, majors[0], w[0]), Side(b, rows_b, majors[1], w[1])
    boffset = (side_a.bytes + 1023) // 1024 * 1024
    tile = (boffset + side_b.bytes + 511) // 512 * 512
    aoffset = tile * group
    total = aoffset + 128 * 32 * group
    description = values_for((a, b)).format(total)
    data = make_data(description)
    k = side_a.k
    sign = (-1 if negate[0] else 1, -1 if negate[1] else 1)
    duplicated = group == 2 and m == 128
    A, B = [], []
    for row in range(m):
        cta, inner = divmod(row, rows_a)
        if ts:
            lane = place(m, group, n, row, 0)[1]
            start = aoffset + (cta * 128 + (lane % 64 if duplicated else lane)) * 32
            size = side_a.element
            A.append([sign[0] * decode(a, int.from_bytes(data[start + i * size:start + i * size + size], "little")) for i in range(k)])
        else:
            A.append([sign[0] * side_a.value(data[cta * tile:], inner, i) for i in range(k)])
    for column in range(n):
        cta, inner = divmod(column, rows_b)
        B.append([sign[1] * side_b.value(data[cta * tile + boffset:], inner, i) for i in range(k)])
    columns = n // 2 if duplicated else n
    initial = {"f32": 0x40400000, "f16": 0x4200, "s32": 3}[d]
    cells = [[[initial] * columns for _ in range(128)] for _ in range(group)]
    base = 3 * 2.0 ** -(scale or 0) if accumulate else 0
    for row, column in itertools.product(range(m), range(n)):
        cta, lane, at = place(m, group, n, row, column)
        if disabled and disabled[lane // 32 + 4 * (cta if group == 2 else 0)] >> lane % 32 & 1:
            continue
        value = base + sum(map(mul, A[row], B[column]))
        cells[cta][lane][at] = int(value) & 0xFFFFFFFF if d == "s32" else encode(d, value)
    want = b"".join(u32s(*row) for cta in cells for row in cta)
    types = TYPES[kind]
    idesc = ({"f16": 0, "f32": 1, "s32": 2}[d] << 4 | types[a] << 7 | types[b] << 10 | negate[0] << 13 | negate[1] << 14 | (majors[0] == "mn") << 15
             | (majors[1] == "mn") << 16 | n >> 3 << 17 | m >> 4 << 24)
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2]" if group == 1 else \
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r2], %h1"
    family.row("mma", forms, want, MMA_ORIGIN, tile=tile, group=group, meet=BAR if group == 1 else CLUSTER, cluster=group, block=128, arch="sm_100a",
               start=initial, lanes=63 if duplicated else 127, aoffset=aoffset, boffset=boffset, adesc=side_a.descriptor(), bdesc=side_b.descriptor(), idesc=idesc,
               accumulate=int(accumulate), A="[%r17]" if ts else "%d4", M="{" + ", ".join(map(str, disabled)) + "}, " if disabled else "",
               H="" if scale is None else f", {scale}", commit=commit, stride=4 * columns, columns=columns, mask=0xFFFF if d == "f16" else 0xFFFFFFFF, **{"in": description}, **more)


def add_mma(family):
    add_mma_kernel(family)
    defaults = {"f16": [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f16", "f16", "f16")], "tf32": [("tf32", "tf32", "f32")],
                "f8f6f4": [("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f16"), ("e4m3", "e2m1", "f32"), ("e3m2", "e5m2", "f32"), ("e2m3", "e2m3", "f32"), ("e2m1", "e3m2", "f32")],
                "i8": [("s8", "s8", "s32"), ("u8", "s8", "s32"), ("u8", "u8", "s32")]}
    collectors = ["", ".collector::a::discard", ".collector::a::fill"]
    for kind, group in itertools.product(defaults, (1, 2)):
        form = f"tcgen05.mma.cta_group::{group}.kind::{kind}"
        a, b, d = defaults[kind][0]
        big = 128 * group
        for ts in (False, True):
            mma_row(family, [form + c for c in collectors], kind, a, b, d, big, 64, group, ts=ts)
            # The value is the same, but no instruction before has filled the buffer.
            mma_row(family, form + ".collector::a::lastuse", kind, a, b, d, big, 64, group, ts=ts, check="no")
        for a, b, d in defaults[kind][1:]:
            mma_row(family, form, kind, a, b, d, big, 32, group, accumulate=False)
        a, b, d = defaults[kind][0]
        mma_row(family, form, kind, a, b, d, big // 2, 64, group)
        mma_row(family, form, kind, a, b, d, big // 2, 64, group, ts=True)
        mma_row(family, form, kind, a, b, d, big, 256, group)
        mma_row(family, form, kind, a, b, d, big, 32, group, disabled=[0, 0xFFFFFFFF, 0x0F0F0F0F, 1, 0, 7, 0x80000000, 0][:4 * group])
        for wide in (2, 4, 8):
            mma_row(family, form, kind, a, b, d, big, 64, group, w=(wide, wide))
    for group in (1, 2):
        for kind, a in (("f16", "bf16"), ("f16", "f16"), ("f8f6f4", "e4m3"), ("i8", "s8")):
            form = f"tcgen05.mma.cta_group::{group}.kind::{kind}"
            d = "s32" if kind == "i8" else "f32"
            for majors, w in itertools.product((("k", "mn"), ("mn", "k"), ("mn", "mn")), (1, 8)):
                wb = min(w, 64 // group // (128 // WIDTH[a])) if majors[1] == "mn" else w
                mma_row(family, form, kind, a, a, d, 128 * group, 64, group, majors=majors, w=(w, wb))
        for kind, a in (("f16", "f16"), ("tf32", "tf32")):
            form = f"tcgen05.mma.cta_group::{group}.kind::{kind}"
            mma_row(family, form, kind, a, a, "f32", 128 * group, 32, group, scale=1)
            mma_row(family, form, kind, a, a, "f32", 128 * group, 32, group, negate=(1, 0))
            mma_row(family, form, kind, a, a, "f32", 128 * group, 32, group, negate=(0, 1), accumulate=False)
    for n in (8, 16, 24, 40):
        mma_row(family, "tcgen05.mma.cta_group::1.kind::f16", "f16", "bf16", "bf16", "f32", 64, n)


# --- alloc, commit, cp, shift ----------------------------------------------------------------------------------------------


def add_small(family):
    common = dict(block=32, arch="sm_100a")
    head = ".shared .align 8 .b64 bar; .shared .align 16 .b32 slot[8];"
    origin = "9.7.16.7: worked by hand; that the lowest free columns are given is what kernels that read constant addresses rely on"
    for group in (1, 2):
        g = f"cta_group::{group}"
        meet = BAR if group == 1 else CLUSTER
        family.kernel(f"alloc{group}", f"""mov.u32 %r1, slot; cvt.u64.u32 %d5, %r1; cvta.shared.u64 %d6, %d5; $alloc [$A], 64; add.u32 %r2, %r1, 4; tcgen05.alloc.{g}.sync.aligned.shared::cta.b32 [%r2], 32; $give;
ld.shared.v2.b32 {{%r3, %r4}}, [%r1]; tcgen05.dealloc.{g}.sync.aligned.b32 %r4, 32; $free %r3, 64; mov.u32 %r5, %cluster_ctarank; mul.wide.u32 %d7, %r5, 8; add.s64 %d7, %out, %d7; st.global.v2.b32 [%d7], {{%r3, %r4}}; {meet};""", head)
        names = dict(alloc=f"tcgen05.alloc.{g}.sync.aligned.shared::cta.b32", free=f"tcgen05.dealloc.{g}.sync.aligned.b32", give=f"tcgen05.relinquish_alloc_permit.{g}.sync.aligned")
        for form in names.values():
            family.row(f"alloc{group}", form, u32s(0, 64) * group, origin, A="%d5", cluster=group, **names, **common)
        generic = f"tcgen05.alloc.{g}.sync.aligned.b32"
        family.row(f"alloc{group}", generic, u32s(0, 64) * group, origin, A="%d6", cluster=group, **{**names, "alloc": generic}, **common)
        # A commit with nothing before it arrives at once: at the CTA's own barrier, or at those of the mask.
        family.kernel(f"commit{group}", f"""mov.u32 %r2, bar; cvt.u64.u32 %d5, %r2; cvta.shared.u64 %d6, %d5; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster; {CLUSTER};
mov.u32 %r5, %cluster_ctarank; or.b32 %r6, %r5, %t; setp.eq.u32 %p2, %r6, 0; mov.b16 %h1, $mask; @%p2 $form [$A]$N;
{CLUSTER}; mov.u32 %r9, $mask; shr.u32 %r9, %r9, %r5; and.b32 %r9, %r9, 1; setp.eq.u32 %p4, %r9, 0; @%p4 bra past; wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0; @!%p3 bra wait;
past: mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 0; selp.b32 %r7, 1, 0, %p3; mul.wide.u32 %d7, %r5, 4; add.s64 %d7, %out, %d7; st.global.b32 [%d7], %r7; {CLUSTER};""", head)
        base = f"tcgen05.commit.{g}.mbarrier::arrive::one"
        for space, a in (("", "%d6"), (".shared::cluster", "%d5")):
            family.row(f"commit{group}", f"{base}{space}.b64", u32s(1, 0), "9.7.16.12.1", A=a, mask=1, cluster=2, **common)
            for mask in (1, 2, 3):
                family.row(f"commit{group}", f"{base}{space}.multicast::cluster.b64", u32s(mask & 1, mask >> 1), "9.7.16.12.1", A=a, N=", %h1", mask=mask, cluster=2, **common)
    family.kernel("order", f"{ALLOC} $before; {BAR}; $after; {MINE} mov.b32 %r20, %t; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r11], {{%r20}}; $st; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r21}}, [%r11]; $ld; "
                  f"mul.wide.u32 %d1, %t, 4; add.s64 %d1, %out, %d1; st.global.b32 [%d1], %r21; {FREE}", HEAD)
    names = dict(before="tcgen05.fence::before_thread_sync", after="tcgen05.fence::after_thread_sync", st="tcgen05.wait::st.sync.aligned", ld="tcgen05.wait::ld.sync.aligned")
    for form in names.values():
        family.row("order", form, u32s(*range(128)), "9.7.16.8.5, 9.7.16.11: a store, a wait, a load", tile=16, group=1, meet=BAR, **names, **{**common, "block": 128})
    add_copies(family)


# Rows of 16 bytes, cores of 8 rows: row r, 16-byte chunk c at r % 8 * 16 + r / 8 * SBO + c * LBO.
def add_copies(family):
    text = f""".reg .b32 %v<8>; .reg .b32 %rank;
{ALLOC} mov.u32 %r3, tile; mov.u32 %rank, %cluster_ctarank; shl.b32 %r4, %t, 2; mul.lo.u32 %r5, %rank, 4096; add.u32 %r5, %r5, %r4; mov.u32 %r6, %r4;
fill: cvt.u64.u32 %d1, %r5; add.s64 %d1, %in, %d1; ld.global.b32 %r7, [%d1]; add.u32 %r8, %r3, %r6; st.shared.b32 [%r8], %r7; add.u32 %r5, %r5, 512; add.u32 %r6, %r6, 512; setp.lt.u32 %p3, %r6, 4096; @%p3 bra fill;
fence.proxy.async.shared::cta; {MEET} {MINE}
<<8|mov.b32 %v#, %t;>> tcgen05.st.sync.aligned.32x32b.x8.b32 [%r11], {{<<8|%v#,>>}}; tcgen05.wait::st.sync.aligned; {MEET}
shr.u32 %r15, %r3, 4; and.b32 %r15, %r15, 0x3fff; cvt.u64.u32 %d3, %r15; or.b64 %d4, %d3, $desc; mov.b16 %h1, 3; or.b32 %r19, %t, %rank; setp.ne.u32 %p5, %r19, 0; @%p5 bra wait;
$form [%r10]$X; $commit;
wait: mbarrier.try_wait.parity.shared.b64 %p6, [%r2], 0; @!%p6 bra wait; tcgen05.fence::after_thread_sync;
mad.lo.u32 %r20, %rank, 128, %t; shl.b32 %r20, %r20, 5; cvt.u64.u32 %d1, %r20; add.s64 %d1, %out, %d1; tcgen05.ld.sync.aligned.32x32b.x8.b32 {{<<8|%v#,>>}}, [%r11]; tcgen05.wait::ld.sync.aligned;
<<8|st.global.b32 [%d1+#4], %v#;>> {FREE}"""
    family.kernel("copy", text, HEAD)
    for group in (1, 2):
        commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r2]" if group == 1 else \
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r2], %h1"
        description = f"count4:{4096 * group}"
        data = make_data(description)
        common = dict(tile=4096, group=group, meet=BAR if group == 1 else CLUSTER, cluster=group, block=128, arch="sm_100a", commit=commit, **{"in": description})
        for shape, rows, chunks, multicast in (("128x256b", 128, 2, ""), ("4x256b", 4, 2, ""), ("128x128b", 128, 1, ""), ("64x128b", 64, 1, ".warpx2::02_13"),
                                               ("64x128b", 64, 1, ".warpx2::01_23"), ("32x128b", 32, 1, ".warpx4")):
            want = b""
            leading, stride = 2048, 128
            for cta, lane in itertools.product(range(group), range(128)):
                words = bytearray(u32s(*[lane] * 8))
                row = {"128": lane, "64": lane % 64 if "02" in multicast else lane // 64 * 32 + lane % 32, "32": lane % 32, "4": lane // 32 if lane % 32 == 0 else None}[shape.split("x")[0]]
                for chunk in range(chunks if row is not None else 0):
                    at = cta * 4096 + row % 8 * 16 + row // 8 * stride + chunk * leading
                    words[16 * chunk:16 * chunk + 16] = data[at:at + 16]
                want += bytes(words)
            family.row("copy", f"tcgen05.cp.cta_group::{group}.{shape}{multicast}", want,
                       "9.7.16.9.2 and CUTLASS include/cute/arch/copy_sm100.hpp: rows of the shape on lanes, warps as the qualifier says", desc=leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46,
                       X=", %d4", **common)
        shifted = b"".join(u32s(*[lane + 1 if lane < 31 else lane] * 8) for lane in range(128)) * group
        family.row("copy", f"tcgen05.shift.cta_group::{group}.down", shifted,
                   "9.7.16.9.3 and 9.7.16.2.2 (shape .31x256b): all rows of a warp but the last take the next one's; CUTLASS include/cute/atom/copy_traits_sm100.hpp: the .4x256b copy that follows refreshes the last lane of each quarter", desc=0, **common)


def families():
    loads = Family("tcgen05_loads", "tcgen05.ld (PTX ISA 9.7.16.8)")
    add_loads(loads)
    stores = Family("tcgen05_stores", "tcgen05.st (PTX ISA 9.7.16.8)")
    add_stores(stores)
    products = Family("tcgen05_mma", "tcgen05.mma (PTX ISA 9.7.16.10)")
    add_mma(products)
    small = Family("tcgen05", "tcgen05.alloc, commit, cp, shift, fences and waits (PTX ISA 9.7.16.7, .9, .11, .12)")
    add_small(small)
    return [loads, stores, products, small]
