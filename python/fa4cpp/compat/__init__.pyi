from . import fa2 as fa2
from . import fa3 as fa3
from . import fa4 as fa4
from . import vllm as vllm
