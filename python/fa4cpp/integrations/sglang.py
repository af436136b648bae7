"""fa4cpp in SGLang: the attention backend fa4cpp.

    python -m sglang.launch_server ... --attention-backend fa4cpp

SGLang calls `register` itself, by the entry point sglang.srt.plugins of the installed wheel, in each of its processes.
"""

import warnings

NAME = "fa4cpp"


def register():
    """Makes the name known; the backend is imported when SGLang takes it. What SGLang cannot take is a warning: it starts without."""
    try:
        from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS, register_attention_backend
        from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices
    except ImportError as reason:
        warnings.warn(f"fa4cpp: this SGLang has no attention backends by name ({reason}); accepted: 0.5.23", stacklevel=2)
        return
    if NAME not in ATTENTION_BACKENDS:
        register_attention_backend(NAME)(_make)
    if NAME not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices([NAME])


def _make(runner):
    from ._sglang_backend import Backend

    return Backend(runner)
