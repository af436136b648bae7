"""Gradients: torch.autograd.Function over a method."""

import torch

from ..._errors import NotSupportedError


class _Attention(torch.autograd.Function):
    """(out, lse or None) of a rank's q, k, v and of a sink."""

    @staticmethod
    def forward(ctx, q, k, v, sink, method, problem):
        out, lse, saved = method.forward(problem, q, k, v, sink)
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        ctx.method, ctx.problem = method, problem
        ctx.shapes = q.shape, k.shape, v.shape
        ctx.like, ctx.sink_dtype = (q.dtype, q.device), None if sink is None else sink.dtype
        return out, lse if problem.return_lse else None

    @staticmethod
    def backward(ctx, dout, dlse):
        if torch.is_grad_enabled():  # before any rank is waited for
            raise NotSupportedError("create_graph is on; a gradient of context parallel attention's gradient is not in this version; "
                                    "accepted: create_graph=False")
        dtype, device = ctx.like
        q, _, v = ctx.shapes
        if dout is None:  # other ranks may have one
            dout = torch.zeros((*q[:3], v[3]), dtype=dtype, device=device)
        if dlse is None and ctx.problem.return_lse:
            dlse = torch.zeros((q[0], q[2], q[1]), dtype=torch.float32, device=device)
        dq, dk, dv, dsink = ctx.method.backward(ctx.problem, ctx.saved_tensors, dout, dlse, ctx.shapes)
        return dq, dk, dv, None if dsink is None else dsink.to(ctx.sink_dtype), None, None


attention = _Attention.apply
