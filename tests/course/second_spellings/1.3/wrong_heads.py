"""The group is the slow dimension, where it should be the fast one."""

import torch

from stage1.attention import TorchAttention as Attention


class TorchAttention(Attention):
    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        split = q.unflatten(2, (-1, k.shape[1]))  # [R, Q, group, kv, dim]
        scores = torch.einsum("rqgkd,rksd->rqgks", split, k) / q.shape[-1] ** 0.5
        weights = (scores + mask[:, :, None, None]).softmax(-1)
        return torch.einsum("rqgks,rksd->rqgkd", weights, v).flatten(2)
