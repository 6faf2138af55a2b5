"""A view of the wrong order, by way of einsum."""

import torch

from stage1.attention import TorchAttention as Attention


class TorchAttention(Attention):
    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        group = q.shape[2] // k.shape[1]
        split = q.unflatten(2, (k.shape[1], group))
        scores = torch.einsum("rqkgd,rksd->rkgqs", split, k) * q.shape[-1] ** -0.5
        weights = (scores + mask[:, None, None]).softmax(-1)
        out = torch.einsum("rkgqs,rksd->rkgqd", weights, v).contiguous()
        return out.view(q.shape[0], q.shape[1], q.shape[2] * q.shape[3])
