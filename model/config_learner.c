/* The learner of a configuration: the shape of f, and what contradicts what. */
#include "model/records.h"

int ttt_learner_layers(const ttt_config *c)
{
    if (c->inner_layers > 0)
        return (int)c->inner_layers;
    return c->mixer == TTT_MIXER_MLP ? 2 : 1;
}

int ttt_learner_first(const ttt_config *c)
{
    return c->inner_last_only ? ttt_learner_layers(c) - 1 : 0;
}

int64_t ttt_learner_in(const ttt_config *c, int i)
{
    int64_t lanes = c->hidden_size / c->n_heads;
    return i == 0 ? lanes : c->inner_width * lanes;
}

int64_t ttt_learner_out(const ttt_config *c, int i)
{
    int64_t lanes = c->hidden_size / c->n_heads;
    if (i == ttt_learner_layers(c) - 1)
        return lanes;
    return c->inner_width * lanes * (c->inner_activation == TTT_ACTIVATION_SWIGLU ? 2 : 1);
}

bool ttt__learner_is_paper_form(const ttt_config *c)
{
    int layers = ttt_learner_layers(c);
    return layers <= 2 && (layers == 1 || c->inner_width == 4) &&
           c->inner_activation == TTT_ACTIVATION_GELU && c->inner_loss == TTT_LOSS_L2 &&
           !c->inner_decay && !c->inner_momentum && ttt_learner_first(c) == 0 &&
           c->inner_optimizer == TTT_INNER_SGD;
}

/* Rules that move weights once a mini-batch. */
static bool check_optimizer(const ttt_config *c, ttt_error *error)
{
    const char *name = c->inner_optimizer == TTT_INNER_MUON ? "muon" : "adam";
    if (c->inner_optimizer == TTT_INNER_SGD)
        return c->inner_step == 0 ||
               ttt__fail(error,
                         "inner_step=%g is of inner_optimizer=muon or adam: the step of sgd "
                         "is its rate, ttt_base_lr",
                         c->inner_step);
    if (c->mini_batch_size == 0)
        return ttt__fail(error,
                         "inner_optimizer=%s moves weights when a mini-batch ends, which "
                         "one of mini_batch_size=0 never does",
                         name);
    if (c->learnable_token_idx)
        return ttt__fail(error,
                         "inner_optimizer=%s gives all places of a mini-batch the same "
                         "weights: set learnable_token_idx=false",
                         name);
    if (c->inner_decay)
        return ttt__fail(error,
                         "inner_decay=true is token by token, and inner_optimizer=%s once a "
                         "mini-batch",
                         name);
    if (c->inner_optimizer == TTT_INNER_ADAM && c->inner_momentum)
        return ttt__fail(error, "inner_optimizer=adam has a momentum of its own: set "
                                "inner_momentum=false");
    if (c->inner_optimizer == TTT_INNER_MUON && !c->learnable_w0)
        return ttt__fail(error, "inner_optimizer=muon keeps the norms that weights start with, "
                                "which are 0 with learnable_w0=false");
    return true;
}

bool ttt__learner_check(const ttt_config *c, ttt_error *error)
{
    int layers = ttt_learner_layers(c), learning = layers - ttt_learner_first(c);
    if (!ttt_mixer_learns(c->mixer))
        return true;
    if (c->mini_batch_size == 0 && c->learnable_token_idx)
        return ttt__fail(error, "mini_batch_size=0 takes sequences of any length, which "
                                "learnable_token_idx=true cannot have a parameter for");
    if (learning > 1 && !c->learnable_w0)
        return ttt__fail(error,
                         "learnable_w0=false starts from zero, where mixer=%s of %d layers has no "
                         "gradient to learn from",
                         ttt_mixer_name(c->mixer), layers);
    if (layers == 1 && c->inner_activation != TTT_ACTIVATION_GELU)
        return ttt__fail(error, "inner_activation=swiglu stands between layers, and this learner "
                                "has one: set inner_layers=2, or mixer=ttt_mlp");
    return check_optimizer(c, error);
}
