"""A plugin of pytest that puts fa4cpp behind the names that other projects' test files import.

    cd flash-attention
    python -m pytest -p fa4cpp.testing.peer --fa4-api fa4 --fa4-device cpu tests/cute/test_flash_attn_fast.py

A case counts only when it ran our kernels; what passed without them is counted apart. `--fa4-fault` spoils every result of the
forward, so that one sees the suite notice. `python -m fa4cpp.testing.peer LOG...` counts what several processes wrote.
"""

import collections
import json
import pathlib
import random
import sys
import time

import pytest

# The cases that are not about attention's results, or that ask for what this library does not have, by the function's name.
_MLA = "multi-head latent attention (qv)"
_SKIPPED = {
    "fa4": {"test_flash_attn_varlen_tensor_max_seqlen_reuses_fwd_cache": "counts the entries of their kernel cache",
            "test_flash_attn_cache_separates_broadcast_layouts": "counts the entries of their kernel cache",
            "test_flash_attn_sm120_rejects_splitkv": "expects a refusal of theirs",
            "test_flash_attn_invalid_head_dim": "expects a refusal of theirs",
            "test_flash_attn_fp8_paged_decode_tile_boundary": "fp8", "test_flash_attn_fp8_paged_decode_preserves_tail_mass": "fp8",
            "test_flash_attn_mla_absorbed": _MLA,
            "test_flash_attn_mla_absorbed_varlen": _MLA, "test_flash_attn_mla_paged": _MLA,
            "test_flash_attn_mla_sparse_bwd_sentinel": _MLA, "test_flash_attn_mla_sparse_bwd_sentinel_varlen": _MLA,
            "test_flash_attn_varlen_cumsum_metadata_paths": "reads the metadata of their scheduler",
            "test_flash_attn_varlen_seqlen_k_per_split": "reads the metadata of their scheduler"},
    "fa3": {}, "flashinfer": {}, "vllm": {}, "sdpa": {},
}
# The values of a function's parameters that fa4cpp takes: cases of others are never made.
_ACCEPTED = {
    "fa3": {"test_flash_attn_kvcache": {"has_leftpad": ("False",)}},
    "flashinfer": {"test_batch_decode_with_paged_kv_cache": {"pos_encoding_mode": ("NONE",), "kv_dtype": ("torch.float16",),
                                                             "head_dim": ("128", "256")}},
}
_OURS, _FILE, _PLUGIN, _LATE = "on our kernels", "skipped by the file", "skipped by this plugin", "not run for want of time"
_RESULTS = (_OURS, "without our kernels", "failed", _FILE, _PLUGIN, _LATE)
_counts = collections.Counter()
_started = time.monotonic()


def pytest_addoption(parser):
    group = parser.getgroup("fa4cpp")
    group.addoption("--fa4-api", choices=sorted(_SKIPPED), required=False, default="fa4", help="whose names fa4cpp answers to")
    group.addoption("--fa4-device", choices=("cpu", "cuda", "b200", "h200"), default="cpu",
                    help="where tensors of the device 'cuda' are made; b200 and h200: on the CPU, for an emulated GPU")
    group.addoption("--fa4-sample", type=int, default=1, help="every how-many-th case to run, drawn with a fixed seed")
    group.addoption("--fa4-most", type=int, help="how many cases of each test function to run at most, drawn with a fixed seed")
    group.addoption("--fa4-part", default="1/1", help="I/N: the cases of the I-th of N processes")
    group.addoption("--fa4-seconds", type=float, help="cases that would begin later than that are not run")
    group.addoption("--fa4-log", help="a file that gets a line of JSON a case, when it ends")
    group.addoption("--fa4-fault", action="store_true", help="spoil every result of the forward")


def pytest_configure(config):
    from . import _names

    api, device = config.getoption("--fa4-api"), config.getoption("--fa4-device")
    if device != "cuda" and api != "sdpa":
        _names.put_on_cpu()
    if device in ("b200", "h200"):
        _names.fa4cpp.emulate(device).__enter__()
    _names.ANSWER[api](pathlib.Path(config.invocation_params.dir))
    if config.getoption("--fa4-fault"):
        _names.spoil()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Draws here, where a function of 387072 cases has no items yet: those would take minutes and gigabytes."""
    result = yield
    accepted = _ACCEPTED.get(metafunc.config.getoption("--fa4-api"), {}).get(metafunc.function.__name__)
    if accepted:
        metafunc._calls = [call for call in metafunc._calls if all(str(call.params[name]) in values for name, values in accepted.items())]
    most = metafunc.config.getoption("--fa4-most")
    if most is not None and len(metafunc._calls) > most:
        metafunc._calls = random.Random(0).sample(metafunc._calls, most)
    return result


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config, items):
    every = config.getoption("--fa4-sample")
    part, parts = map(int, config.getoption("--fa4-part").split("/"))
    kept = random.Random(0).sample(items, -(-len(items) // every)) if every > 1 or parts > 1 else items
    kept = kept[part - 1::parts]
    if every > 1 or parts > 1:
        chosen = set(map(id, kept))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept
    for item in items:
        reason = _SKIPPED[config.getoption("--fa4-api")].get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"fa4cpp: {reason}"))


def pytest_runtest_setup(item):
    seconds = item.config.getoption("--fa4-seconds")
    if seconds is not None and time.monotonic() - _started > seconds:
        pytest.skip(f"fa4cpp: {_LATE}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    from fa4cpp.torch import _tensors

    before = _tensors.launches
    try:
        return (yield)
    finally:
        item.user_properties.append(("fa4cpp launches", _tensors.launches - before))


def _result(report):
    """One of _RESULTS; None for a stage that says nothing."""
    text = str(report.longrepr) if report.skipped else ""
    if report.skipped:
        return _LATE if _LATE in text else _PLUGIN if "fa4cpp: " in text else _FILE
    if report.failed:
        return "failed"
    if report.when != "call":
        return None
    return _OURS if dict(report.user_properties).get("fa4cpp launches", 0) > 0 else "without our kernels"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    result = _result(report)
    if result is not None:
        _counts[result] += 1
        log = item.config.getoption("--fa4-log")
        if log:
            line = {"case": report.nodeid, "result": result, "seconds": round(report.duration, 2)}
            if result == "failed":
                line["text"] = str(report.longrepr)[-3000:]
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return report


def _line(counts):
    return ", ".join(f"{counts[result]} {result}" for result in _RESULTS if counts[result] or result != _LATE)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"fa4cpp: {_line(_counts)}")


def _summary(logs):
    """A line for each test function of the logs, and for each failure."""
    by_function = collections.defaultdict(collections.Counter)
    failures = []
    for log in logs:
        for line in pathlib.Path(log).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            by_function[row["case"].split("[")[0]][row["result"]] += 1
            if row["result"] == "failed":
                failures.append(row["case"])
    return [f"{function}: {_line(counts)}" for function, counts in sorted(by_function.items())] + [f"failed: {case}" for case in failures]


if __name__ == "__main__":
    print("\n".join(_summary(sys.argv[1:])))
