/* Prints how every kernel is launched, one a line, for tools/kernel_table.py. */
#include "kernels/cuda/kernels.h"

#include <stdio.h>

int main(void)
{
    size_t count;
    const cuda_kernel *list = cuda_kernels(&count);
    for (size_t i = 0; i < count; i++)
        printf("%s %d %d %zu\n", list[i].name, list[i].threads, list[i].parts, list[i].shared);
    return 0;
}
