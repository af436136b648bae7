from typing import NamedTuple

from . import context_parallel as context_parallel
from .. import flash_attn_func as flash_attn_func
from .. import flash_attn_varlen_func as flash_attn_varlen_func
from .. import merge_partials as merge_partials
from .. import supports as supports

__all__ = ["Fallback", "activate", "deactivate", "fallbacks", "flash_attn_func", "flash_attn_varlen_func", "launches",
           "merge_partials", "supports"]

class Fallback(NamedTuple):
    direction: str
    reason: str
    count: int  # type: ignore[assignment]  # in place of the method that tuples have

def activate() -> None: ...
def deactivate() -> None: ...
def fallbacks() -> list[Fallback]: ...
def launches() -> int: ...
