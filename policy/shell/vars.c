/*
 * What the text itself says about its variables, parameters and functions: `x=rm; $x -rf /`.
 *
 * A reader, not a shell: assignments count in the order of the text, whatever branch or subshell
 * they stand in, and what comes from elsewhere (the environment, a file, a program's output) is not
 * known. A wrong guess costs little: exec-time policy sees what really runs.
 */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/shell/lexer_private.h"

static bool is_named(const char *stored, const char *name, size_t len)
{
    return strncmp(stored, name, len) == 0 && stored[len] == '\0';
}

/* --- variables ------------------------------------------------------------------------------- */

static void var_done(struct var *v)
{
    free(v->name);
    free(v->value);
}

struct vars_scope vars_enter(struct lex *l)
{
    struct vars_scope outer = { l->var_floor, l->var_count };

    l->var_floor = l->var_count;
    return outer;
}

void vars_leave(struct lex *l, struct vars_scope outer)
{
    while (l->var_count > outer.count)
        var_done(&l->vars[--l->var_count]);
    l->var_floor = outer.floor;
}

/* The variable of this scope, or a new one; NULL when there are too many. */
static struct var *own_var(struct lex *l, const char *name, size_t len)
{
    struct var *v;

    for (size_t i = l->var_floor; i < l->var_count; i++) {
        if (is_named(l->vars[i].name, name, len))
            return &l->vars[i];
    }
    v = l->var_count < LEX_VARS_MAX ? &l->vars[l->var_count] : NULL;
    if (v)
        *v = (struct var){ .name = strndup(name, len) };
    if (!v || !v->name) {
        l->vars_lost = true; /* from here on nothing is known any more */
        return NULL;
    }
    l->var_count++;
    return v;
}

void vars_set(struct lex *l, const char *name, size_t name_len, const char *value, size_t len,
              bool array)
{
    struct var *v = own_var(l, name, name_len);
    char *copy;

    if (!v)
        return;
    copy = value && len <= LEX_VALUE_MAX ? malloc(len + 1) : NULL;
    if (copy) {
        memcpy(copy, value, len);
        copy[len] = '\0';
    }
    free(v->value);
    v->value = copy;
    v->len = len;
    v->array = array;
}

const struct var *vars_get(const struct lex *l, const char *name, size_t len)
{
    static const struct var shell = { .value = "/bin/bash", .len = 9 };

    for (size_t i = l->vars_lost ? 0 : l->var_count; i-- > 0;) {
        if (is_named(l->vars[i].name, name, len))
            return l->vars[i].value ? &l->vars[i] : NULL;
    }
    if ((len == 5 && memcmp(name, "SHELL", 5) == 0) || (len == 4 && memcmp(name, "BASH", 4) == 0) ||
        (len == 1 && *name == '0'))
        return &shell;
    return NULL;
}

/* Elements stand one after the other, each ended by a NUL. */
const char *vars_element(const struct var *v, size_t i)
{
    const char *at = v->value;

    if (!v->array)
        return i == 0 ? at : NULL;
    for (; at < v->value + v->len; at += strlen(at) + 1) {
        if (i-- == 0)
            return at;
    }
    return NULL;
}

void vars_set_words(struct lex *l, const char *name, size_t name_len, size_t first, size_t last)
{
    struct buf all;

    buf_init(&all, LEX_VALUE_MAX);
    for (size_t i = first; i < last; i++)
        buf_add(&all, lex_word(l, i), strlen(lex_word(l, i)) + 1);
    if (all.overflow)
        vars_set(l, name, name_len, NULL, 0, true);
    else
        vars_set(l, name, name_len, all.data ? all.data : "", all.len, true);
    buf_done(&all);
}

/* x=value and x+=value; a[1]=value is not followed. */
void vars_assign(struct lex *l, const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    const char *value = strchr(word, '=');
    const struct var *old;
    struct buf both;

    if (n == 0 || !value)
        return;
    if (word[n] == '=') {
        vars_set(l, word, n, value + 1, strlen(value + 1), false);
        return;
    }
    if (word[n] != '+')
        return;
    old = vars_get(l, word, n);
    buf_init(&both, LEX_VALUE_MAX);
    if (old)
        buf_add_str(&both, old->value);
    buf_add_str(&both, value + 1);
    vars_set(l, word, n, old && !both.overflow && both.data ? both.data : NULL, both.len, false);
    buf_done(&both);
}

/* --- functions and aliases ------------------------------------------------------------------- */

static struct function *find_function(struct lex *l, const char *name)
{
    for (size_t i = 0; i < l->function_count; i++) {
        if (strcmp(l->functions[i].name, name) == 0)
            return &l->functions[i];
    }
    return NULL;
}

void vars_define(struct lex *l, const char *name, const char *body, size_t len)
{
    struct function *f = find_function(l, name);
    char *copy = len <= LEX_VALUE_MAX ? strndup(body, len) : NULL;

    if (!f && l->function_count < LEX_FUNCTIONS_MAX && copy) {
        f = &l->functions[l->function_count];
        *f = (struct function){ .name = strdup(name) };
        l->function_count += f->name != NULL;
        f = f->name ? f : NULL;
    }
    if (f) {
        free(f->body);
        f->body = take_ptr(copy);
    }
    free(copy);
}

/*
 * `f rm -rf /`: the commands of the function f are judged once more, with these parameters. A
 * function that is called without parameters was judged where it is defined. A function that calls
 * itself is not followed. All calls together have a bound of their own; reaching it refuses
 * nothing, because exec-time policy sees what really runs.
 */
void vars_call(struct lex *l, const struct shell_command *c)
{
    struct function *f = find_function(l, lex_word(l, c->first));
    AUTO_FREE char *body = f && f->body && !f->active ? strdup(f->body) : NULL;
    struct vars_scope outer;
    size_t index;

    if (!body || !strchr(body, '$') || l->depth > LEX_DEPTH_MAX / 2 ||
        l->call_bytes + strlen(body) > LEX_CALL_BYTES)
        return;
    index = (size_t)(f - l->functions);
    l->call_bytes += strlen(body);
    outer = vars_enter(l);
    vars_set_words(l, "@", 1, c->first + 1, c->last);
    l->functions[index].active = true;
    lex_nested_text(l, body, strlen(body));
    l->functions[index].active = false;
    vars_leave(l, outer);
}

void vars_done(struct lex *l)
{
    vars_leave(l, (struct vars_scope){ 0 });
    for (size_t i = 0; i < l->function_count; i++) {
        free(l->functions[i].name);
        free(l->functions[i].body);
    }
}
