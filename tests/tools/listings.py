"""Listings of machine code as nvdisasm prints them, made up for the tests: a small kernel in roles."""


class Listing:
    def __init__(self, target="sm_100a", name="kernel"):
        self.rows = [f"\t.target\t{target}", f"\t.section\t.text.{name},\"ax\",@progbits"]
        self.address, self.later = 0, []

    def label(self, number):
        self.rows.append(f".L_x_{number}:")

    def put(self, text, line=0, guard="", times=1):
        for _ in range(times):
            if line:
                self.rows.append(f'\t//## File ".nv_debug_ptx_txt", line {line}')
            self.rows.append(f"        /*{self.address:04x}*/  {guard + ' ' if guard else ''}             {text} ;")
            self.address += 16

    def wait(self, number, line):
        """A wait on a barrier; it polls again out of line."""
        self.put(f"SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4+{line:#x}], R5", line)
        self.put(f"BRA `(.L_x_{number})", line, "@!P0")
        self.label(number + 1)
        self.later.append((number, line))

    def end(self):
        self.put("EXIT", 17)
        for number, line in self.later:
            self.label(number)
            self.put("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R5", line)
            self.put(f"BRA `(.L_x_{number})", line, "@!P0")
            self.put(f"BRA `(.L_x_{number + 1})", line)
        return "\n".join(self.rows) + "\n"


def softmax_block(out, powers, line, masked=False, local=False, apart=0):
    """One block of keys: PTX lines `line` to `line` + 7. `apart`: P has a place of its own; a label to wait for it."""
    for i in range(4):
        out.put(f"LDTM.x32 R{32 * i + 8}, tmem[UR5+{32 * i:#x}]", line)
    if apart:
        out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x50], RZ", line)
        out.wait(apart, line)
    for i in range(64):
        out.put(f"FMNMX3 R{140 + i % 4}, R{140 + i % 4}, R{2 * i + 8}, R{2 * i + 9}, !PT", line + 1)
    for i in range(64 * masked):
        out.put(f"FSEL R{i + 8}, R{i + 8}, -INF , P1", line + 1)
    for i in range(64):
        out.put(f"FFMA2 R{2 * i + 8}, R{2 * i + 8}.F32x2.HI_LO, UR6.F32, R140.F32", line + 2)
    for i in range(powers - powers // 4):
        out.put(f"MUFU.EX2 R{i % 128 + 8}, R{i % 128 + 8}", line + 3)
    out.put("STTM.x16 tmem[UR5], R8", line + 4, times=3)
    if local:
        out.put("STL [R1], R8", line + 4)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x60], RZ", line + 5)
    for i in range(powers // 4):
        out.put(f"MUFU.EX2 R{i % 32 + 104}, R{i % 32 + 104}", line + 6)
    out.put("STTM.x16 tmem[UR5+0x30], R8", line + 6)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x70], RZ", line + 7)


def softmax(out, first, powers, line, masked=False, local=False, both=False, apart=False):
    """A loop over blocks: labels from `first` on, PTX lines from `line` on. `both`: those that need a mask have a
    branch of the same loop, of lines from `line` + 20 on."""
    out.put("MOV R3, RZ", line)
    out.label(first)
    out.wait(first + 10, line + 1)
    if both:
        out.put(f"BRA `(.L_x_{first + 1})", line + 1, "@P6")
    softmax_block(out, powers, line + 2, masked, local, first + 12 if apart else 0)
    if both:
        out.put(f"BRA `(.L_x_{first + 2})", line + 9)
        out.label(first + 1)
        softmax_block(out, powers, line + 20, masked=True)
        out.label(first + 2)
    out.put("IADD3 R3, R3, 0x1, RZ", line + 10)
    out.put(f"BRA `(.L_x_{first})", line + 10, "@P2")


def correction(out, first, line):
    out.label(first)
    out.put("BAR.SYNC.DEFER_BLOCKING R53, 0x40", line)
    out.put(f"BRA `(.L_x_{first + 1})", line + 1, "@!P3")
    out.put("LDTM.x16 R8, tmem[UR4]", line + 2)
    out.put("FMUL2 R8, R8.F32x2.HI_LO, R4.F32", line + 2, times=16)
    out.put("STTM.x16 tmem[UR4], R8", line + 2)
    out.label(first + 1)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8], RZ", line + 3)
    out.put(f"BRA `(.L_x_{first})", line + 4, "@P2")


def products(out, first, line, head_dim, opcode, tiles=2, apart=False):
    def scores():
        out.put(f"{opcode} gdesc[UR6], gdesc[UR24], tmem[UR30], tmem[UR26], idesc[UR27], UPT", line + 5, times=head_dim // 16)
        out.put("UTCBAR [UR4], URZ", line + 5)

    out.label(first)
    for stage in range(tiles):
        if apart:
            out.wait(first + 10 + 2 * stage, line + 5)
            scores()
        out.wait(first + 2 + 4 * stage, line + 1)
        out.put(f"{opcode} tmem[UR9], gdesc[UR10], tmem[UR7], tmem[UR24], idesc[UR25], UPT", line + 2, times=6)
        out.wait(first + 4 + 4 * stage, line + 3)
        out.put(f"{opcode} tmem[UR9], gdesc[UR10], tmem[UR7], tmem[UR24], idesc[UR25], UPT", line + 4, times=2)
        if not apart:
            scores()
    out.put(f"BRA `(.L_x_{first})", line + 6, "@P2")


def kernel(powers=128, head_dim=128, masked=False, local=False, pair=False, both=False, tiles=2, target="sm_100a", apart=False):
    """Three roles one after another, chosen by the warp. Softmax is of PTX lines 100 to 110 (masked: 200 on),
    correction of 300 to 304, products of 400 to 406."""
    out = Listing(target)
    out.put("BRA `(.L_x_500)", 10, "@P4")
    out.put("BRA `(.L_x_600)", 11, "@P5")
    out.put("USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xc0", 12)
    if masked:
        softmax(out, 200, powers, 200, masked=True)
    softmax(out, 100, powers, 100, local=local, both=both, apart=apart)
    out.put("EXIT", 13)
    out.label(500)
    out.put("USETMAXREG.DEALLOC.CTAPOOL 0x50", 14)
    correction(out, 501, 300)
    out.put("EXIT", 15)
    out.label(600)
    out.put("USETMAXREG.DEALLOC.CTAPOOL 0x30", 16)
    products(out, 601, 400, head_dim, "UTCHMMA.2CTA" if pair else "UTCHMMA", tiles, apart)
    return out.end()


def line_counts(blocks=8, rescales=2):
    """What ptxemu run --counts writes of one CTA with four warps, warp 0 and 1 softmax."""
    def of(lines):
        return [list(pair) for pair in sorted(lines.items())]

    softmax_lines = {10: 1, 11: 1, 12: 1, 13: 1, 100: 1} | {line: blocks for line in range(101, 111)}
    correction_lines = {10: 1, 14: 1, 15: 1, 300: blocks, 301: blocks, 302: rescales, 303: blocks, 304: blocks}
    mma_lines = {10: 1, 11: 1, 16: 1} | {line: blocks for line in range(401, 407)}
    warps = {0: softmax_lines, 4: softmax_lines, 8: correction_lines, 12: mma_lines}
    return {"schema": 1, "launches": [{"kernel": "kernel", "warps": [
        {"cta": [0, 0, 0], "warp": w, "lines": of(lines)} for w, lines in warps.items()]}]}
