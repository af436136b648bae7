"""Gradients: torch.autograd.Function outside the operators."""

import contextlib

import torch
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from .. import _device
from .._errors import NotSupportedError
from . import _ops, _tensors


def _operator(name, *tensors):
    """The function itself in eager mode, else the operator; `tensors` are those that it takes, the first three never None."""
    plain = not torch.compiler.is_compiling() and _ops.is_plain(*tensors)
    return getattr(_ops if plain else torch.ops.fa4cpp, name)


NO_TANGENT = "forward-mode AD is not in this version; accepted: gradients by backward()"


def refuse_tangents(**tensors):
    """Raises where forward-mode AD asks for a derivative of these tensors."""
    if forward_ad._current_level < 0:
        return
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotSupportedError(f"{name} has a tangent; {NO_TANGENT}")


class _Once(torch.autograd.Function):
    """Gradients of a backward under create_graph=True, behind the `count` tensors that they are made of: they have none of their own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count, *tensors):
        return tuple(None if gradient is None else gradient.view_as(gradient) for gradient in tensors[count:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise NotSupportedError("a gradient of attention's gradient is not in this version; accepted: one backward "
                                "(F.scaled_dot_product_attention has more under sdpa_kernel(SDPBackend.MATH))")

    @staticmethod
    def jvp(ctx, *_):
        raise NotSupportedError(f"what attention's gradient is made of has a tangent; {NO_TANGENT}")


class Attention(torch.autograd.Function):
    """(out, lse) of q, k, v, sink, five index tensors, and the numbers of an operator."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, *numbers):
        arguments = (q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, *numbers)
        return _operator("forward", *arguments[:9])(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:9], *output)
        ctx.numbers = inputs[9:]
        ctx.device = None if torch.compiler.is_compiling() else _device.in_use()
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dout, dlse):
        count = 9 + len(ctx.numbers)
        if dout is None and dlse is None:
            return (None,) * count
        saved = ctx.saved_tensors
        if not torch.compiler.is_compiling():  # what torch.func.vjp returned may be called when its transformation is over
            saved = unwrap_dead_wrappers(saved)
        *inputs, out, lse = saved
        return *gradients(dout, dlse, out, lse, inputs, ctx.numbers, ctx.device), *(None,) * (count - 4)


class _Refusing(torch.library.Library):
    """Its kernels of autograd refuse tangents: torch's own drops them without a word where no gradient is required."""

    def impl(self, name, kernel, *rest, **options):
        def refusing(keyset, q, k, v, sink, *others):
            refuse_tangents(q=q, k=k, v=v, sink=sink)
            return kernel(keyset, q, k, v, sink, *others)

        super().impl(name, refusing, *rest, **options)


# For compilers that see the operator where they would see Attention: torch.vmap inside torch.func.grad.
_REFUSING = _Refusing("fa4cpp", "FRAGMENT")
torch.library.register_autograd("fa4cpp::forward", Attention.backward, setup_context=Attention.setup_context, lib=_REFUSING)


class _Eager(Attention):
    """What torch.func.hessian and its like ask for, whose tangents no argument shows; Dynamo takes no Function that has it."""

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotSupportedError(f"q, k, v or sink has a tangent inside of a gradient; {NO_TANGENT}")


def gradients(dout, dlse, out, lse, inputs, numbers, device):
    """(dq, dk, dv, dsink); `inputs` are q, k, v, sink and five index tensors, `device` is what tensors of the CPU ran on."""
    refuse_tangents(dout=dout, dlse=dlse)
    backward = _operator("backward", *inputs, dout, dlse, out, lse)
    with contextlib.nullcontext() if device is None else _device.using(device):
        dq, dk, dv, dsink = backward(dout, dlse, out, lse, *inputs, *numbers)
    made = dq, dk, dv, None if inputs[3] is None else dsink.to(inputs[3].dtype)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        sources = (dout, dlse, *inputs[:4])
        made = _Once.apply(len(sources), *sources, *made)
    return made


def _distinct(arguments):
    """Views where one tensor stands twice, as self-attention's may: Dynamo takes no such Function."""
    result = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor) and any(argument is other for other in result):
            argument = argument.view_as(argument)
        result.append(argument)
    return result


def is_transformed():
    """Whether torch.vmap or another transformation of torch.func is on."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def attention(q, k, v, sink, indices, numbers):
    """(out, lse), with gradients where they are wanted."""
    arguments = (q, k, v, sink, *indices, *numbers)
    # Inside torch.vmap no tensor says whether a gradient is wanted outside it.
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad
                                    or (sink is not None and sink.requires_grad) or is_transformed()):
        if torch.compiler.is_compiling():
            return Attention.apply(*_distinct(arguments))
        if torch.jit.is_tracing():  # the operator has these gradients too, and a graph of operators can be saved
            return torch.ops.fa4cpp.forward(*arguments)
        if _ops.is_plain(*arguments[:9]):
            _refuse_early(arguments)
        return _Eager.apply(*arguments)
    return _operator("forward", *arguments[:9])(*arguments)


def _refuse_early(arguments):
    """Raises at the call, not in the backward, where the backward does not run it."""
    call = _ops.call_of(arguments[:9], *arguments[9:])
    try:
        call.shapes.query("backward")
    except NotSupportedError as error:
        raise NotSupportedError(f"{error} (q, k, v or sink requires a gradient)") from None
