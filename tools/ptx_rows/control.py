"""Control flow, calls, moves of predicates, vectors and addresses, and what concerns the whole kernel (PTX ISA 9.7.9.3, 9.7.12, 9.7.13.13, 9.7.17, 9.7.19)."""

from .core import Family, make_data, u32s, words_of

DATA = words_of(make_data("bits:1024"))
GET = "shl.b32 %r20, %t, 2; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20; ld.global.b32 %r1, [%d1];"
TWICE = ".func (.reg .b32 result) twice(.reg .b32 value) { add.u32 result, value, value; ret; }"
THRICE = ".func (.reg .b32 result) thrice(.reg .b32 value) { mul.lo.u32 result, value, 3; ret; }"
BY_PARAM = """.func (.param .b32 result) packed(.param .align 16 .b8 value[16]) { .reg .b32 %a<4>; .reg .b64 %w; ld.param.v2.b32 {%a0, %a1}, [value]; ld.param.b32 %a2, [value+8]; ld.param.b16 %a3, [value+12];
add.u32 %a0, %a0, %a1; add.u32 %a0, %a0, %a2; add.u32 %a0, %a0, %a3; st.param.b32 [result], %a0; ret; }"""


def add_branches(family):
    family.kernel("branch", f"{GET} and.b32 %r2, %r1, 3; setp.gt.u32 %p1, %r2, 1; mov.u32 %r3, 0;\nagain: add.u32 %r3, %r3, %r2; setp.lt.u32 %p2, %r3, 20; setp.ne.u32 %p3, %r2, 0; and.pred %p2, %p2, %p3; @%p2 $form again;\nst.global.b32 [%d2], %r3;")

    def total(step):
        value = 0
        while True:
            value += step
            if not (value < 20 and step):
                return value

    family.row("branch", "bra", u32s(*[total(v & 3) for v in DATA[:32]]), "9.7.12.3: lanes leave the loop at different times")
    family.kernel("branch_uniform", "mov.u32 %r3, 0;\nagain: add.u32 %r3, %r3, 3; setp.lt.u32 %p2, %r3, 20; @%p2 $form again;\nst.global.b32 [%out], %r3;")
    family.row("branch_uniform", "bra.uni", u32s(21), "9.7.12.3")
    family.kernel("table", f"""{GET} and.b32 %r2, %r1, 3; $I
ts: .branchtargets one, two, three, one;
$form %r2, ts;
one: mov.u32 %r3, 11; bra done;
two: mov.u32 %r3, 22; bra done;
three: mov.u32 %r3, 33;
done: st.global.b32 [%d2], %r3;""")
    family.row("table", "brx.idx", u32s(*[[11, 22, 33, 11][v & 3] for v in DATA[:32]]), "9.7.12.4")
    family.row("table", "brx.idx.uni", u32s(*[22] * 32), "9.7.12.4", I="mov.u32 %r2, 1;")
    family.kernel("leave", f"{GET} st.global.b32 [%d2], 1; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 $form; st.global.b32 [%d2], 2;")
    for form in ("exit", "ret"):
        family.row("leave", form, u32s(*[2 if v & 1 else 1 for v in DATA[:32]]), "9.7.12.6, .7: the other lanes go on")
    family.kernel("leave_all", f"{GET} st.global.b32 [%d2], 1; $form; st.global.b32 [%d2], 2;")
    family.row("leave_all", "ret.uni", u32s(*[1] * 32), "9.7.12.6")


def add_calls(family):
    family.kernel("call", f"{GET} $form (%r3), twice, (%r1); st.global.b32 [%d2], %r3;", TWICE)
    for form in ("call", "call.uni"):
        family.row("call", form, u32s(*[2 * v for v in DATA[:32]]), "9.7.12.5")
    family.kernel("call_param", f"""{GET} {{ .param .align 16 .b8 argument[16]; .param .b32 answer; mov.b16 %h1, 7; st.param.v2.b32 [argument], {{%r1, 5}}; st.param.b32 [argument+8], %t; st.param.b16 [argument+12], %h1; st.param.b16 [argument+14], %h1;
$form (answer), packed, (argument); ld.param.b32 %r3, [answer]; }} st.global.b32 [%d2], %r3;""", BY_PARAM)
    family.row("call_param", ["call", "call.uni"], u32s(*[v + 5 + i + 7 for i, v in enumerate(DATA[:32])]), "9.7.12.5 and 7.1: arguments in .param memory")
    family.kernel("call_indirect", f"""{GET} setp.eq.u32 %p1, $which, 0; mov.u64 %d5, twice; mov.u64 %d6, thrice; selp.b64 %d7, %d5, %d6, %p1;
kind: .callprototype (.reg .b32 _) _ (.reg .b32 _);
$form (%r3), %d7, (%r1), kind; st.global.b32 [%d2], %r3;""", TWICE + "\n" + THRICE)
    for form, which in (("call", 0), ("call", 1), ("call.uni", 1)):
        family.row("call_indirect", form, u32s(*[v * (2 + which) for v in DATA[:32]]), "9.7.12.5: through a register", which=which)
    # Lanes that call one function or the other, or none, and constants as arguments.
    family.kernel("call_divergent", f"""{GET} mov.u64 %d5, twice; mov.u64 %d6, thrice; and.b32 %r4, %t, 1; setp.eq.u32 %p1, %r4, 0; selp.b64 %d7, %d5, %d6, %p1; setp.ge.u32 %p2, %t, 8; mov.u32 %r3, 9;
kind: .callprototype (.reg .b32 _) _ (.reg .b32 _);
@%p2 $form (%r3), %d7, (%r1), kind; @!%p2 $form (%r5), thrice, (5); @!%p2 add.u32 %r3, %r3, %r5; activemask.b32 %r6; popc.b32 %r6, %r6; add.u32 %r3, %r3, %r6; st.global.b32 [%d2], %r3;""", TWICE + "\n" + THRICE)
    family.row("call_divergent", "call", u32s(*[32 + (v * (2 + i % 2) if i >= 8 else 24) for i, v in enumerate(DATA[:32])]), "9.7.12.5: a call without .uni may be divergent")
    # st.param and ld.param of a call, type by type: the callee gives back what it was given.
    family.kernel("parameter", """shl.b32 %r20, %t, 5; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; mul.lo.u32 %r21, %t, $bytes; cvt.u64.u32 %d21, %r21; add.s64 %d2, %out, %d21; $G
{ .param .align 16 .b8 argument[16]; .param .align 16 .b8 answer[16]; $store [argument], $D; call.uni (answer), same, (argument); $load $D, [answer]; } $S""",
                  """.func (.param .align 16 .b8 answer[16]) same(.param .align 16 .b8 value[16]) { .reg .b8 %b; .reg .b64 %w; ld.param.b64 %w, [value]; st.param.b64 [answer], %w; ld.param.b64 %w, [value+8]; st.param.b64 [answer+8], %w; ret; }""")
    data = make_data("bits:1024")
    widths = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
    for kind, size in widths.items():
        for vector, count in (("", 1), ("v2", 2), ("v4", 4)):
            if size * count > 16:
                continue
            letter = {1: "%h", 2: "%h", 4: "%r", 8: "%d1"}[size]
            names = [f"{letter}{i}" for i in range(count)]
            operand = "{" + ",".join(names) + "}" if vector else names[0]
            get = "".join(f"ld.global.b{8 * size} {n},[%d1+{size * i}];" for i, n in enumerate(names))
            put = "".join(f"st.global.b{8 * size} [%d2+{size * i}],{n};" for i, n in enumerate(names))
            want = b"".join(data[32 * i:32 * i + size * count] for i in range(32))
            tail = ("." + vector if vector else "") + "." + kind
            for space in ("param", "param::func"):
                store, load = f"st.{space}{tail}", f"ld.{space}{tail}"
                for form in (store, load):
                    family.row("parameter", form, want, "9.7.9.8, .11 and 7.1", store=store, load=load, D=operand, G=get, S=put, bytes=size * count, block=32)


def add_moves(family):
    family.kernel("move", f"{GET} add.s64 %d3, %d1, 0; .reg .$kind %m, %n; $L $form %n, %m; $W mul.wide.u32 %d4, %t, 8; add.s64 %d4, %out, %d4; st.global.b64 [%d4], %d5;")
    for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        width = int(kind[1:])
        mask = (1 << width) - 1
        load = f"mul.wide.u32 %d6, %t, 8; add.s64 %d6, %in, %d6; ld.global.{kind} %m, [%d6];"
        widen = "mov.b64 %d5, %n;" if width == 64 else "mov.b32 %r5, %n; mov.b64 %d5, {%r5, 0};" if width == 32 else "mov.b16 %h5, %n; mov.b64 %d5, {%h5, 0, 0, 0};"
        data = make_data("bits:1024")
        want = b"".join((int.from_bytes(data[8 * i:8 * i + 8], "little") & mask).to_bytes(8, "little") for i in range(32))
        family.row("move", f"mov.{kind}", want, "9.7.9.3", kind=kind, L=load, W=widen)
    family.kernel("pack", "mov.u32 %r1, 0x04030201; mov.u32 %r2, 0x08070605; .reg .b8 %b<8>; $X st.global.v4.b32 [%out], {%r5, %r6, %r7, %r8};")
    origin = "9.7.9.4: the first element has the lowest bits"
    rows = {
        "mov.b32": ("mov.b32 {%h1, %h2}, %r1; mov.b32 %r5, {%h2, %h1}; mov.b32 %r6, {%h1, %h1}; mov.u32 %r7, 0; mov.u32 %r8, 0;", (0x02010403, 0x02010201, 0, 0)),
        "mov.b64": ("mov.b64 %d5, {%r2, %r1}; mov.b64 {%r5, %r6}, %d5; mov.b64 {%h1, %h2, %h3, %h4}, %d5; mov.b64 %d6, {%h4, %h3, %h2, %h1}; mov.b64 {%r7, %r8}, %d6;", (0x08070605, 0x04030201, 0x02010403, 0x06050807)),
        "mov.b128": ("mov.b64 %d5, {%r1, %r2}; mov.b64 %d6, {%r2, %r1}; mov.b128 %q0, {%d6, %d5}; mov.b128 {%d7, %d8}, %q0; mov.b64 {%r5, %r6}, %d7; mov.b64 {%r7, %r8}, %d8;", (0x08070605, 0x04030201, 0x04030201, 0x08070605)),
    }
    for form, (text, want) in rows.items():
        family.row("pack", form, u32s(*want), origin, X=text, block=1)
    family.kernel("predicate", f"{GET} and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; $form %p2, %p1; selp.b32 %r3, 1, 0, %p2; st.global.b32 [%d2], %r3;")
    family.row("predicate", "mov.pred", u32s(*[v & 1 for v in DATA[:32]]), "9.7.9.3")
    family.kernel("address", "mov.u64 %d5, cells; ld.global.b32 %r1, [%d5+4]; mov.u64 %d6, cells+8; ld.global.b32 %r2, [%d6]; mov.u32 %r3, tile; st.shared.b32 [tile+4], 9; ld.shared.b32 %r4, [%r3+4]; $form %d7, cells; "
                  "sub.s64 %d7, %d7, %d5; cvt.u32.u64 %r5, %d7; st.global.v4.b32 [%out], {%r1, %r2, %r4, %r5};", ".global .align 8 .b32 cells[4] = {5, 6, 7, 8}; .shared .align 8 .b32 tile[4];")
    family.row("address", "mov.u64", u32s(6, 7, 9, 0), "9.7.9.3: addresses of variables", block=1)


def add_kernel_wide(family):
    family.kernel("registers", "setp.lt.u32 %p1, %t, 128; @%p1 bra low; $inc 120; bra done; low: $dec 40; done: mul.wide.u32 %d1, %t, 4; add.s64 %d1, %out, %d1; st.global.b32 [%d1], %t;", entry=".maxntid 256\n.minnctapersm 1\n.maxnreg 80")
    names = dict(inc="setmaxnreg.inc.sync.aligned.u32", dec="setmaxnreg.dec.sync.aligned.u32")
    for form in names.values():
        family.row("registers", form, u32s(*range(256)), "9.7.19.5: no value changes", block=256, **names)
    family.kernel("dependents", "$form; st.global.b32 [%out], 4;")
    for form in ("griddepcontrol.wait", "griddepcontrol.launch_dependents"):
        family.row("dependents", form, u32s(4), "9.7.13.13: alone, a kernel waits for nobody", block=1)
    family.kernel("stop", "st.global.b32 [%out], 4; $form;")
    family.row("stop", "trap", "trap", "9.7.19.4", status="trap", block=1)
    family.row("stop", "brkpt", "trap", "9.7.19.1: without a debugger it ends the kernel", status="trap", block=1)
    family.kernel("sleep", "mov.u32 %r1, 40; nanosleep.u32 $N; st.global.b32 [%out], 4;")
    for n in ("0", "1000", "%r1"):
        family.row("sleep", "nanosleep.u32", u32s(4), "9.7.19.2", N=n, block=1)
    family.kernel("print", """.local .align 8 .b8 values[16]; mov.u64 %d5, values; cvta.local.u64 %d6, %d5; st.local.b32 [%d5], 42; mov.f64 %g1, 0d3FF8000000000000; st.local.f64 [%d5+8], %g1; mov.u64 %d7, words; cvta.global.u64 %d8, %d7;
{ .param .b64 format; .param .b64 arguments; .param .b32 answer; st.param.b64 [format], %d8; st.param.b64 [arguments], %d6; $form (answer), vprintf, (format, arguments); }""",
                  ".extern .func (.param .b32 answer) vprintf(.param .b64 format, .param .b64 arguments);\n.global .align 1 .b8 words[10] = {37, 100, 45, 37, 103, 46, 0, 0, 0, 0};")
    family.row("print", "call.uni", "42-1.5.", "CUDA C++ programming guide, formatted output: %d-%g. of 42 and 1.5", block=1)


def families():
    family = Family("control", "Control flow, calls, moves, and what concerns the whole kernel (PTX ISA 9.7.9.3, .4, 9.7.12, 9.7.13.13, 9.7.19)")
    for add in (add_branches, add_calls, add_moves, add_kernel_wide):
        add(family)
    return [family]
