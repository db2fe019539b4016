/* The path that is being compiled, as a table. */
#include "kernels/cpu/code.h"
#include "kernels/cpu/lanes.h"

void CODE(step)(const step_head *head);
void CODE(product_f32)(const product_part *part);
void CODE(product_bf16)(const product_part *part);
void CODE(product_s8)(const product_part *part);
size_t CODE(scan_scratch)(const scan_job *job, bool backward);
void CODE(scan)(const scan_job *job, int64_t unit, float *scratch);
void CODE(scan_backward)(const scan_job *job, int64_t unit, float *scratch);

const cpu_code CODE(cpu_code) = {
    .name = CODE_TEXT(CODE_PATH),
    .lanes = LANES,
    .step = CODE(step),
    .product_f32 = CODE(product_f32),
    .product_bf16 = CODE(product_bf16),
    .product_s8 = CODE(product_s8),
    .scan_scratch = CODE(scan_scratch),
    .scan = CODE(scan),
    .scan_backward = CODE(scan_backward),
};
