/* Files of text, and of JSON lines with text in them, a document after another. */
#ifndef TOOLS_CLI_TEXT_DOCUMENTS_H
#define TOOLS_CLI_TEXT_DOCUMENTS_H

#include "runtime/tokenizer/ttt_tokenizer.h"

/* Gives the documents of a file to a tokenizer's trainer: of one that ends with .jsonl the "text"
 * of every line, as `ttt data prepare` reads it; of any other all there is. */
PJRT_MUST_CHECK pjrt_status *texts_learn(ttt_bpe_trainer *trainer, const char *path);

#endif
