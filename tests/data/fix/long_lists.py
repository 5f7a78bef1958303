from torch.autograd import Function


class LongLists(Function):
    @staticmethod
    def forward(ctx, first_matrix, second_matrix, third_matrix, fast: bool):
        if fast:
            return first_matrix * 2
        ctx.product_of_the_first_two = first_matrix @ second_matrix
        ctx.product_of_the_last_two = second_matrix @ third_matrix
        ctx.product_of_all_of_them = ctx.product_of_the_first_two @ third_matrix
        ctx.product_the_other_way_round = third_matrix @ second_matrix
        return ctx.product_of_all_of_them

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.product_of_the_first_two, ctx.product_of_the_last_two
        c, d = ctx.product_of_all_of_them, ctx.product_the_other_way_round
        return g @ a @ b @ c @ d, None, None, None
