"""fa4cpp in vLLM: the attention backend FA4CPP.

    vllm serve ... --attention-backend FA4CPP

vLLM calls `register` itself, by the entry point vllm.general_plugins of the installed wheel, in each of its processes.
"""

import warnings

NAME = "FA4CPP"


def register():
    """Makes the name known; the backend is imported when vLLM takes it. What vLLM cannot take is a warning: it starts without."""
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

        if NAME not in AttentionBackendEnum.__members__:
            register_backend(NAME, "fa4cpp.integrations._vllm_backend.Backend")
    except (ImportError, AttributeError, ValueError) as reason:
        warnings.warn(f"fa4cpp: this vLLM has no attention backends by name ({reason}); accepted: 0.33", stacklevel=2)
