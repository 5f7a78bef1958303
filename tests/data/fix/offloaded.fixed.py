import torch


def moved(value, device):
    """A copy of tensors, and of what holds them."""
    if torch.is_tensor(value):
        new = value.to(device).detach().clone()
        new.requires_grad = value.requires_grad
        return new
    elif isinstance(value, list):
        return [moved(item, device) for item in value]
    elif isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    return value


class Offloaded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, offload, *args):
        saved_tensors = None
        to_save = ()
        ctx.function, ctx.offload = function, offload
        ctx.others, ctx.places = [], []
        tensors = []
        for place, arg in enumerate(args):
            if torch.is_tensor(arg):
                tensors.append(moved(arg, "cpu") if offload else arg)
                ctx.places.append(place)
                ctx.others.append(None)
            else:
                ctx.others.append(arg)
        if offload:
            saved_tensors = tensors
        else:
            to_save = (*tensors,)
        with torch.no_grad():
            ctx.tensors = None if saved_tensors is None else [
                None if isinstance(item, torch.Tensor) else item for item in saved_tensors
            ]
            ctx.tensors_count = len(ctx.tensors or ())
            ctx.save_for_backward(
                *(item if isinstance(item, torch.Tensor) else None for item in saved_tensors or ()), *to_save,
            )
            return function(*args)

    @staticmethod
    def backward(ctx, grad):
        saved = ctx.saved_tensors
        saved_tensors, saved = list(saved[: ctx.tensors_count]), saved[ctx.tensors_count :]
        saved_tensors = None if ctx.tensors is None else [
            kept if saved_item is None else saved_item for saved_item, kept in zip(saved_tensors, ctx.tensors)
        ]
        if ctx.offload:
            tensors = saved_tensors
        else:
            tensors = saved
        inputs = list(ctx.others)
        for place, tensor in zip(ctx.places, tensors):
            inputs[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with torch.enable_grad():
            output = ctx.function(*inputs)
        torch.autograd.backward(output, grad)
        grads = [item.grad if torch.is_tensor(item) else None for item in inputs]
        return None, None, *grads
