/* eingrad/cxx.h: the C++ interface. In C, eg_softmax("... [i]", x, .where = "j <= i") is a macro
 * that fills a struct of options; in C++ it is a function whose last argument is that struct:
 *
 *     eg_softmax_args o = eg_softmax_args();
 *     o.where = "j <= i";
 *     eg_softmax("... [i]", x, o);
 *
 * Calls with any number of sizes or operands are templates. Each header of eingrad includes this
 * file at its end, for the section of its own functions; it need not be included by hand. */
#ifndef EG_CXX_SPEC_
/* result name(spec, x, options); with _OF_, operand is the member of the options that x becomes */
#define EG_CXX_SPEC_OF_(result, name, args, operand)                    \
    inline result name(const char *spec, eg_tensor *x, args o = args()) \
    {                                                                   \
        o.size = sizeof o, o.spec = spec, o.operand = x;                \
        return name##_with(&o);                                         \
    }
#define EG_CXX_SPEC_(result, name, args) EG_CXX_SPEC_OF_(result, name, args, x)
/* module_new(params, name, options) */
#define EG_CXX_NEW_(module, args)                                                \
    inline module *module##_new(eg_params *p, const char *name, args o = args()) \
    {                                                                            \
        o.size = sizeof o, o.params = p, o.name = name;                          \
        return module##_new_with(&o);                                            \
    }
/* result name(first, options), `first` being a member of the options */
#define EG_CXX_OF_(result, name, type, first, args) \
    inline result name(type first, args o = args()) \
    {                                               \
        o.size = sizeof o, o.first = first;         \
        return name##_with(&o);                     \
    }
/* y = name(module, x, options), `member` and `operand` being those of the options */
#define EG_CXX_RUN_(name, module, member, operand)                                       \
    inline eg_tensor *name(const module *m, eg_tensor *x, name##_args o = name##_args()) \
    {                                                                                    \
        o.size = sizeof o, o.member = m, o.operand = x;                                  \
        return name##_with(&o);                                                          \
    }
/* y = name(first, operands …) */
#define EG_CXX_EACH_(name, type)                                       \
    template <class... X_> inline eg_tensor *name(type first, X_... x) \
    {                                                                  \
        eg_tensor *const xs[] = { x... };                              \
        return name##_n(first, int(sizeof...(x)), xs);                 \
    }
/* name(params, options), an optimiser */
#define EG_CXX_OPT_(name)                                            \
    inline eg_opt *name(eg_params *p, eg_opt_args o = eg_opt_args()) \
    {                                                                \
        o.size = sizeof o, o.params = p;                             \
        return name##_with(&o);                                      \
    }
/* the call with sizes as arguments, as an array dims_ of rank_ numbers */
#define EG_CXX_DIMS_(call)                     \
    const int64_t dims_[] = { int64_t(d)... }; \
    const int rank_ = int(sizeof...(d));       \
    return call
#endif

/* -- core.h ----------------------------------------------------------------------------------- */
#ifdef EG_CXX_CORE_
#undef EG_CXX_CORE_
inline eg_ctx *eg_open(eg_open_args a = eg_open_args())
{
    a.size = sizeof a;
    return eg_open_with(&a);
}
inline eg_dtype eg_type_of_(const float *) { return EG_F32; }
inline eg_dtype eg_type_of_(const double *) { return EG_F64; }
inline eg_dtype eg_type_of_(const int *) { return EG_I32; }
inline eg_dtype eg_type_of_(const long *) { return EG_I64; }
inline eg_dtype eg_type_of_(const long long *) { return EG_I64; }
inline eg_dtype eg_type_of_(const bool *) { return EG_BOOL; }
inline eg_dtype eg_type_of_(const signed char *) { return EG_I8; }
inline eg_dtype eg_type_of_(const unsigned char *) { return EG_U8; }
template <class Z_, class = decltype(Z_().imag())> inline eg_dtype eg_type_of_(const Z_ *)
{
    static_assert(sizeof(Z_) == 2 * sizeof(double), "c128 is std::complex<double>");
    return EG_C128;
}
/* a pointer or an array, a temporary one too */
template <class A_, class... D_> inline eg_tensor *eg_from(eg_ctx *cx, A_ &&data, D_... d)
{
    EG_CXX_DIMS_(eg_from_n(cx, eg_type_of_(&data[0]), &data[0], rank_, dims_));
}
inline eg_tensor *eg_from_memory(eg_ctx *cx, eg_dtype type, const void *data, int rank,
                                 const int64_t *dims, eg_from_memory_args o = eg_from_memory_args())
{
    o.size = sizeof o, o.cx = cx, o.dtype = type, o.data = data, o.rank = rank, o.dims = dims;
    return eg_from_memory_with(&o);
}
template <class... D_> inline eg_tensor *eg_zeros(eg_ctx *cx, D_... d)
{
    EG_CXX_DIMS_(eg_full_n(cx, EG_DEFAULT, 0, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_ones(eg_ctx *cx, D_... d)
{
    EG_CXX_DIMS_(eg_full_n(cx, EG_DEFAULT, 1, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_full(eg_ctx *cx, double v, D_... d)
{
    EG_CXX_DIMS_(eg_full_n(cx, EG_DEFAULT, v, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_uniform(eg_ctx *cx, double lo, double hi, D_... d)
{
    EG_CXX_DIMS_(eg_uniform_n(cx, EG_DEFAULT, lo, hi, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_normal(eg_ctx *cx, double mean, double dev, D_... d)
{
    EG_CXX_DIMS_(eg_normal_n(cx, EG_DEFAULT, mean, dev, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_randint(eg_ctx *cx, int64_t lo, int64_t hi, D_... d)
{
    EG_CXX_DIMS_(eg_randint_n(cx, lo, hi, rank_, dims_));
}
template <class... D_> inline double eg_get(eg_tensor *x, D_... d)
{
    EG_CXX_DIMS_(eg_get_n(x, rank_, dims_));
}
#endif

/* -- views.h ---------------------------------------------------------------------------------- */
#ifdef EG_CXX_VIEWS_
#undef EG_CXX_VIEWS_
template <class... D_> inline eg_tensor *eg_view(eg_tensor *x, D_... d)
{
    EG_CXX_DIMS_(eg_view_n(x, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_reshape(eg_tensor *x, D_... d)
{
    EG_CXX_DIMS_(eg_reshape_n(x, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_expand(eg_tensor *x, D_... d)
{
    EG_CXX_DIMS_(eg_expand_n(x, rank_, dims_));
}
template <class... D_> inline eg_tensor *eg_permute(eg_tensor *x, D_... d)
{
    const int axes_[] = { int(d)... };
    return eg_permute_n(x, int(sizeof...(d)), axes_);
}
#endif

/* -- ops.h ------------------------------------------------------------------------------------ */
#ifdef EG_CXX_OPS_
#undef EG_CXX_OPS_
EG_CXX_EACH_(eg_einsum, const char *)
template <class... X_> inline eg_tensor *eg_einsum_to(eg_tensor *out, const char *spec, X_... x)
{
    eg_tensor *const xs[] = { x... };
    eg_einsum_args o = eg_einsum_args();
    o.size = sizeof o, o.spec = spec, o.count = int(sizeof...(x)), o.operands = xs, o.out = out;
    return eg_einsum_with(&o);
}
EG_CXX_EACH_(eg_concat, const char *)
EG_CXX_EACH_(eg_stack, const char *)
EG_CXX_EACH_(eg_concat_axis, int)
EG_CXX_EACH_(eg_stack_axis, int)
inline eg_tensor *eg_affine(const char *spec, eg_tensor *x, eg_tensor *W, eg_tensor *b,
                            eg_affine_args o = eg_affine_args())
{
    o.size = sizeof o, o.spec = spec, o.x = x, o.W = W, o.b = b;
    return eg_affine_with(&o);
}
EG_CXX_SPEC_OF_(eg_tensor *, eg_rearrange, eg_rearrange_args, operand)
template <class... P_> inline bool eg_axes(const char *spec, eg_tensor *x, P_... out)
{
    static_assert(sizeof...(out) <= 32, "a tensor has at most 32 axes");
    eg_axes_args o = eg_axes_args();
    int64_t **to = &o.o0;
    const int each[] = { 0, (*to++ = out, 0)... };
    (void)each;
    o.size = sizeof o, o.spec = spec, o.x = x;
    return eg_axes_with(&o);
}
EG_CXX_SPEC_(eg_tensor *, eg_var, eg_var_args)
EG_CXX_SPEC_(eg_tensor *, eg_std, eg_var_args)
EG_CXX_SPEC_(eg_tensor *, eg_sort, eg_sort_args)
EG_CXX_SPEC_(eg_tensor *, eg_argsort, eg_sort_args)
inline eg_tensor *eg_topk(const char *spec, eg_tensor *x, int64_t k,
                          eg_topk_args o = eg_topk_args())
{
    o.size = sizeof o, o.spec = spec, o.x = x, o.k = k;
    return eg_topk_with(&o);
}
inline eg_tensor *eg_expr(const char *axes, const char *text, eg_expr_args o = eg_expr_args())
{
    o.size = sizeof o, o.axes = axes, o.text = text;
    return eg_expr_with(&o);
}
EG_CXX_SPEC_(eg_tensor *, eg_softmax, eg_softmax_args)
EG_CXX_SPEC_(eg_tensor *, eg_log_softmax, eg_softmax_args)
inline eg_tensor *eg_where_mask(eg_ctx *cx, const char *where, const char *axes, int64_t offset = 0,
                                const int64_t *sizes = nullptr,
                                eg_where_mask_args o = eg_where_mask_args())
{
    o.size = sizeof o, o.where = where, o.axes = axes, o.offset = offset, o.sizes = sizes;
    return eg_where_mask_with(cx, &o);
}
EG_CXX_SPEC_(eg_tensor *, eg_layernorm, eg_norm_args)
EG_CXX_SPEC_(eg_tensor *, eg_rmsnorm, eg_norm_args)
#endif

/* -- loss.h ----------------------------------------------------------------------------------- */
#ifdef EG_CXX_LOSS_
#undef EG_CXX_LOSS_
inline eg_tensor *eg_cross_entropy(const char *spec, eg_tensor *logits, eg_tensor *target,
                                   eg_cross_entropy_args o = eg_cross_entropy_args())
{
    o.size = sizeof o, o.spec = spec, o.logits = logits, o.target = target;
    return eg_cross_entropy_with(&o);
}
#endif

/* -- attention.h ------------------------------------------------------------------------------ */
#ifdef EG_CXX_ATTENTION_
#undef EG_CXX_ATTENTION_
/* the options with the operands filled in */
inline eg_attention_args eg_cxx_attention_(const char *spec, eg_tensor *q, eg_tensor *k,
                                           eg_tensor *v, eg_attention_args o)
{
    o.size = sizeof o, o.spec = spec, o.q = q, o.k = k, o.v = v;
    return o;
}
inline eg_tensor *eg_attention(const char *spec, eg_tensor *q, eg_tensor *k, eg_tensor *v,
                               eg_attention_args o = eg_attention_args())
{
    o = eg_cxx_attention_(spec, q, k, v, o);
    return eg_attention_with(&o);
}
#endif

/* -- blocks.h --------------------------------------------------------------------------------- */
#ifdef EG_CXX_BLOCKS_
#undef EG_CXX_BLOCKS_
inline int eg_grad_over(eg_ctx *cx, eg_block_loss *loss, void *user, int64_t examples, int count,
                        eg_tensor *const *xs, eg_tensor **dxs,
                        eg_grad_over_args o = eg_grad_over_args())
{
    o.size = sizeof o, o.cx = cx, o.loss = loss, o.user = user, o.examples = examples;
    o.count = count, o.xs = xs, o.dxs = dxs;
    return eg_grad_over_with(&o);
}
inline eg_tensor *eg_block_call(eg_ctx *cx, eg_block_loss *loss, void *user, int64_t from,
                                int64_t to, int64_t *count,
                                eg_block_call_args o = eg_block_call_args())
{
    o.size = sizeof o, o.cx = cx, o.loss = loss, o.user = user;
    o.from = from, o.to = to, o.count = count;
    return eg_block_call_with(&o);
}
#endif

/* -- gradcheck.h ------------------------------------------------------------------------------ */
#ifdef EG_CXX_GRADCHECK_
#undef EG_CXX_GRADCHECK_
inline const eg_report *eg_gradcheck(eg_function *f, void *user, int count, eg_tensor *const *xs,
                                     eg_gradcheck_args o = eg_gradcheck_args())
{
    o.size = sizeof o, o.f = f, o.user = user, o.count = count, o.xs = xs;
    return eg_gradcheck_with(&o);
}
inline const eg_report *eg_gradcheck_fn(eg_ctx *cx, eg_fn *f, eg_fn_vjp *vjp, void *user, int64_t n,
                                        int64_t m, const double *x,
                                        eg_gradcheck_fn_args o = eg_gradcheck_fn_args())
{
    o.size = sizeof o, o.cx = cx, o.f = f, o.vjp = vjp, o.user = user, o.n = n, o.m = m, o.x = x;
    return eg_gradcheck_fn_with(&o);
}
#endif

/* -- einsum.h --------------------------------------------------------------------------------- */
#ifdef EG_CXX_EINSUM_
#undef EG_CXX_EINSUM_
template <class... X_> inline const eg_explained *eg_explain(const char *spec, X_... x)
{
    eg_tensor *const xs[] = { x... };
    eg_einsum_args o = eg_einsum_args();
    o.size = sizeof o, o.spec = spec, o.count = int(sizeof...(x)), o.operands = xs;
    return eg_explain_with(&o);
}
inline const eg_explained *eg_explain_shapes(eg_ctx *cx, const char *spec, int count,
                                             const eg_shape *shapes,
                                             eg_explain_args o = eg_explain_args())
{
    o.size = sizeof o, o.spec = spec, o.count = count, o.shapes = shapes;
    return eg_explain_shapes_with(cx, &o);
}
inline eg_plan *eg_plan_new(const char *spec, int count, const eg_shape *operands,
                            eg_plan_args o = eg_plan_args())
{
    o.size = sizeof o, o.spec = spec, o.count = count, o.operands = operands;
    return eg_plan_new_with(&o);
}
#endif

/* -- nn.h ------------------------------------------------------------------------------------- */
#ifdef EG_CXX_NN_
#undef EG_CXX_NN_
inline eg_params *eg_params_open(eg_ctx *cx, eg_params_args o = eg_params_args())
{
    o.size = sizeof o, o.cx = cx;
    return eg_params_open_with(&o);
}
template <class... D_>
inline eg_tensor *eg_param(eg_params *p, const char *name, const char *axes, D_... d)
{
    const int64_t dims_[] = { int64_t(d)... };
    return eg_param_n(p, name, axes, int(sizeof...(d)), dims_);
}
template <class... D_> inline eg_tensor *eg_constant(eg_params *p, D_... d)
{
    const int64_t dims_[] = { int64_t(d)... };
    return eg_constant_n(p, int(sizeof...(d)), dims_);
}
EG_CXX_NEW_(eg_linear, eg_linear_args)
EG_CXX_NEW_(eg_norm, eg_norm_new_args)
EG_CXX_NEW_(eg_embedding, eg_embedding_args)
EG_CXX_NEW_(eg_positions, eg_positions_args)
EG_CXX_NEW_(eg_ffn, eg_ffn_args)
EG_CXX_RUN_(eg_positions_run, eg_positions, positions, x)
#endif

/* -- linear_attention.h ----------------------------------------------------------------------- */
#ifdef EG_CXX_LINEAR_ATTENTION_
#undef EG_CXX_LINEAR_ATTENTION_
inline eg_tensor *eg_linear_attention(const char *spec, eg_tensor *q, eg_tensor *k, eg_tensor *v,
                                      eg_linear_attention_args o = eg_linear_attention_args())
{
    o.size = sizeof o, o.spec = spec, o.q = q, o.k = k, o.v = v;
    return eg_linear_attention_with(&o);
}
#endif

/* -- mha.h ------------------------------------------------------------------------------------ */
#ifdef EG_CXX_MHA_
#undef EG_CXX_MHA_
EG_CXX_SPEC_(eg_tensor *, eg_rotary, eg_rotary_args)
inline eg_cache *eg_cache_new(eg_owner *owner, int64_t capacity, eg_cache_args o = eg_cache_args())
{
    o.size = sizeof o, o.owner = owner, o.capacity = capacity;
    return eg_cache_new_with(&o);
}
EG_CXX_NEW_(eg_mha, eg_mha_args)
EG_CXX_RUN_(eg_mha_run, eg_mha, mha, query)
#endif

/* -- model.h ---------------------------------------------------------------------------------- */
#ifdef EG_CXX_MODEL_
#undef EG_CXX_MODEL_
EG_CXX_NEW_(eg_block, eg_block_args)
EG_CXX_NEW_(eg_transformer, eg_transformer_args)
EG_CXX_NEW_(eg_seq2seq, eg_seq2seq_args)
EG_CXX_RUN_(eg_block_run, eg_block, block, x)
EG_CXX_RUN_(eg_transformer_run, eg_transformer, transformer, index)
inline eg_tensor *eg_seq2seq_run(const eg_seq2seq *m, eg_tensor *source, eg_tensor *target,
                                 eg_seq2seq_run_args o = eg_seq2seq_run_args())
{
    o.size = sizeof o, o.net = m, o.source = source, o.target = target;
    return eg_seq2seq_run_with(&o);
}
inline eg_tensor *eg_seq2seq_encode(const eg_seq2seq *m, eg_tensor *source,
                                    eg_seq2seq_run_args o = eg_seq2seq_run_args())
{
    o.size = sizeof o, o.net = m, o.source = source;
    return eg_seq2seq_encode_with(&o);
}
inline eg_tensor *eg_seq2seq_decode(const eg_seq2seq *m, eg_tensor *target, eg_tensor *memory,
                                    eg_seq2seq_decode_args o = eg_seq2seq_decode_args())
{
    o.size = sizeof o, o.net = m, o.target = target, o.memory = memory;
    return eg_seq2seq_decode_with(&o);
}
#endif

/* -- ranks.h ---------------------------------------------------------------------------------- */
#ifdef EG_CXX_RANKS_
#undef EG_CXX_RANKS_
EG_CXX_OF_(eg_ranks *, eg_ranks_open, eg_ctx *, cx, eg_ranks_open_args)
EG_CXX_OF_(eg_ranks_tree *, eg_ranks_tree_open, eg_ranks *, ranks, eg_ranks_tree_args)
#endif

/* -- optimiser.h ------------------------------------------------------------------------------ */
#ifdef EG_CXX_OPTIMISER_
#undef EG_CXX_OPTIMISER_
EG_CXX_OPT_(eg_sgd)
EG_CXX_OPT_(eg_adam)
EG_CXX_OPT_(eg_adamw)
EG_CXX_OPT_(eg_rmsprop)
EG_CXX_OPT_(eg_adagrad)
EG_CXX_OPT_(eg_opt_custom)
inline int eg_step_over(eg_opt *opt, eg_block_loss *loss, void *user, int64_t examples,
                        eg_step_over_args o = eg_step_over_args())
{
    o.size = sizeof o, o.opt = opt, o.loss = loss, o.user = user, o.examples = examples;
    return eg_step_over_with(&o);
}
#endif

/* -- train.h ---------------------------------------------------------------------------------- */
#ifdef EG_CXX_TRAIN_
#undef EG_CXX_TRAIN_
EG_CXX_OF_(eg_trainer *, eg_trainer_new, eg_data *, data, eg_trainer_args)
EG_CXX_OF_(const char *, eg_trainer_generate, eg_trainer *, trainer, eg_generate_args)
inline eg_trainer *eg_trainer_load(eg_ctx *cx, const char *path, int64_t steps = 0,
                                   eg_trainer_load_args o = eg_trainer_load_args())
{
    o.size = sizeof o, o.cx = cx, o.path = path, o.steps = steps;
    return eg_trainer_load_with(&o);
}
#endif

/* -- decode.h --------------------------------------------------------------------------------- */
#ifdef EG_CXX_DECODE_
#undef EG_CXX_DECODE_
inline const eg_decoded *eg_decode(eg_ctx *cx, eg_next *next, void *user,
                                   eg_decode_args o = eg_decode_args())
{
    o.size = sizeof o, o.cx = cx, o.next = next, o.user = user;
    return eg_decode_with(&o);
}
#endif

/* -- heads.h ---------------------------------------------------------------------------------- */
#ifdef EG_CXX_HEADS_
#undef EG_CXX_HEADS_
EG_CXX_OF_(const eg_head *, eg_heads, eg_tensor *, weights, eg_heads_args)
inline eg_tensor *eg_attention_mass(const char *region, const char *spec, eg_tensor *q,
                                    eg_tensor *k, eg_tensor *v,
                                    eg_attention_args o = eg_attention_args())
{
    o = eg_cxx_attention_(spec, q, k, v, o);
    return eg_attention_mass_with(&o, region);
}
inline eg_tensor *eg_attention_entropy(const char *spec, eg_tensor *q, eg_tensor *k, eg_tensor *v,
                                       eg_attention_args o = eg_attention_args())
{
    o = eg_cxx_attention_(spec, q, k, v, o);
    return eg_attention_entropy_with(&o);
}
inline eg_tensor *eg_attention_similarity(const char *head, const char *spec, eg_tensor *q,
                                          eg_tensor *k, eg_tensor *v,
                                          eg_attention_args o = eg_attention_args())
{
    o = eg_cxx_attention_(spec, q, k, v, o);
    return eg_attention_similarity_with(&o, head);
}
#endif
