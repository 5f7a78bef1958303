from torch.autograd import Function


class LongLists(Function):
    @staticmethod
    def forward(ctx, first_matrix, second_matrix, third_matrix, fast: bool):
        product_of_the_first_two = None
        product_of_the_last_two = None
        product_of_all_of_them = None
        product_the_other_way_round = None
        if fast:
            ctx.save_for_backward(
                product_of_the_first_two, product_of_the_last_two, product_of_all_of_them,
                product_the_other_way_round,
            )
            return first_matrix * 2
        product_of_the_first_two = first_matrix @ second_matrix
        product_of_the_last_two = second_matrix @ third_matrix
        product_of_all_of_them = product_of_the_first_two @ third_matrix
        product_the_other_way_round = third_matrix @ second_matrix
        ctx.save_for_backward(
            product_of_the_first_two, product_of_the_last_two, product_of_all_of_them,
            product_the_other_way_round,
        )
        return product_of_all_of_them

    @staticmethod
    def backward(ctx, g):
        a, b, c, d = ctx.saved_tensors
        return g @ a @ b @ c @ d, None, None, None
