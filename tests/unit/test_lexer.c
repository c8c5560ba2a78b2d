/* policy/shell/lexer.c and its parts: which commands does a text run, with which words? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/policy.h"
#include "policy/shell/lexer.h"

/* What was found, a command each, with ` ; ` between them; texts for a shell stand in {braces}. */
static bool collect(void *ctx, enum lexer_kind kind, const char *text, size_t len)
{
    struct buf *b = ctx;

    if (b->len)
        buf_add_str(b, " ; ");
    buf_add_str(b, kind == LEXER_SCRIPT ? "{" : "");
    buf_add(b, text, len);
    buf_add_str(b, kind == LEXER_SCRIPT ? "}" : "");
    return true;
}

static const struct {
    const char *text, *commands, *because;
} cases[] = {
    /* words */
    { "ls -l  \t a", "ls -l a", "blanks between words" },
    { "", "", "nothing" },
    { "  # rm x", "", "a comment" },
    { "ls # rm x\nid", "ls ; id", "a comment ends with its line" },
    { "echo a#b", "echo a#b", "no comment within a word" },
    { "r''m", "rm", "empty quotes" },
    { "r\"\"m 'a b'", "rm a b", "quotes are removed" },
    { "r\\m -r\\f", "rm -rf", "so are backslashes" },
    { "'r'm \"-\"r'f'", "rm -rf", "quotes in the middle of words" },
    { "echo 'a\\'b", "echo a\\b", "no escapes within single quotes" },
    { "echo \"a\\\"b\\n\"", "echo a\"b\\n", "few within double ones" },
    { "ec\\\nho a \\\n b", "echo a b", "lines that go on" },
    { "$'\\x72\\155' $'a\\tb'", "rm a b", "ANSI-C quotes" },
    { "$'\\u72m' $\"x\"", "rm x", "and $\"\"" },
    { "'unfinished", "unfinished", "a quote without an end" },
    { "\"unfinished $(id", "id ; unfinished $() ; unfinished", "and worse" },
    { "''$()x \"\"$(true)", "true ; x ''", "a word that begins with nothing" },
    { "rm '' a", "rm '' a", "an empty word stays visible" },
    { "rm 'a\n  b'", "rm a b", "blanks in a word are one blank" },
    { "/usr/bin/rm /a/b", "rm /a/b", "the folder of a program does not count" },
    { "./x/rm", "rm", "wherever it is" },

    /* expansions */
    { "rm$IFS-rf${IFS}/", "rm -rf /", "IFS is a blank" },
    { "rm${IFS:0:1}x", "rm x", "in every dress" },
    { "echo \"a${IFS}b\"", "echo a b", "quoted as well" },
    { "r$@m $*x ${1}y", "rm x y", "there are no parameters" },
    { "$x \"$y\" ${z}", "$x $y ${z} ; $y ${z}",
      "what a variable holds is not known; it may be nothing" },
    { "${x:-rm -f} y", "rm -f y", "a default may be what counts" },
    { "${x:-$(id)}", "id ; $()", "a command in a default" },
    { "${x#$(id)}", "id ; ${x}", "or in a pattern" },
    { "echo ${#x} ${!y}", "echo ${x} ${y}", "lengths and indirections" },

    /* braces */
    { "{rm,-rf,/}", "rm -rf /", "a whole command in braces" },
    { "rm -{r,f} x", "rm -r -f x", "what stands around is repeated" },
    { "a{b,}c", "abc ac", "an empty part" },
    { "a{b,c}d{e,f}", "abde abdf acde acdf", "several lists" },
    { "{a','b} {a\\,b} x\"{\"a,b} {a,'}'b}", "{a,b} {a,b} x{a,b} a }b",
      "quoted signs do not count" },
    { "{a,b{c,d}} {1..3} {c..a} {1..9..4}", "a bc bd 1 2 3 c b a 1 5 9",
      "lists in lists, and sequences" },
    { "x={a,b}; $x", "{a,b}", "none in an assignment" },
    { "'{a,b}' {a} {} a,b {a,b", "{a,b} {a} {} a,b {a,b", "no list, no braces" },
    { "$x{b,c} ${y}{d,e}", "$xb $xc ${y}d ${y}e ; $xc ${y}d ${y}e",
      "a variable's braces are its own" },
    { "rm 2{3,4}>x", "rm 23 24 >x", "and this is no descriptor" },

    /* separators */
    { "a;b&&c||d|e&f\ng", "a ; b ; c ; d ; e ; f ; g", "each is a command" },
    { "a |& b", "a ; b", "with its errors" },
    { "(a; (b)) ; { c; }", "a ; b ; c", "subshells and groups" },
    { "! a", "a", "not" },
    { "a\r\nb", "a ; b", "a carriage return is a blank at the end of a word" },
    { "if a; then b; elif c; then d; else e; fi", "a ; b ; c ; d ; e", "if" },
    { "while a; do b; done; until c\ndo d; done", "a ; b ; c ; d", "while, until" },
    { "for x in rm -rf /; do a; done", "a", "the words of for are data" },
    { "for x do a; done", "a", "for without in" },
    { "for ((i=0;i<3;i++)); do a; done", "i <3 ; i++ ; a", "arithmetic is harmless" },
    { "case $x in a|b) c ;; (d) e ;& *) f; esac; g", "c ; e ; f ; g", "case" },
    { "case a in b) case c in d) e;; esac;; f) g;; esac", "e ; g", "case in case" },
    { "echo $(case a in b) c;; esac) d", "c ; echo $() d", "its ) does not end the $(" },
    { "f() { a; }; function g { b; }", "f() ; a ; g() ; b", "bodies of functions" },
    { "[[ a < b && (c > d) ]] && e", "a b ; c d ]] ; e", "no files are opened by a test" },
    { "echo if then", "echo if then", "reserved words only where a command begins" },
    { "\"if\" x", "if x", "and only without quotes" },
    { "time -p a", "time -p a ; a", "time takes options" },

    /* assignments and redirections */
    { "A=1 B=$(id) rm x", "id ; rm x", "assignments are no command" },
    { "A=1", "", "not even alone" },
    { "a=(rm -rf / $(id)); b", "id ; b", "an array is data" },
    { "ls > out 2>&1 <in", "ls >out <in", "targets are shown at the end" },
    { ">/dev/sda cat x", "cat x >/dev/sda", "wherever they stood" },
    { "> x", ">x", "even without a command" },
    { "ls &> x; ls >| y; ls >>z", "ls >x ; ls >y ; ls >z", "every arrow" },
    { "ls 2>x {fd}>y a2>z", "ls a2 >x >y >z", "a number in front belongs to the arrow" },

    /* substitutions */
    { "echo $(a $(b))", "b ; a $() ; echo $()", "inner ones first" },
    { "echo \"$(a \"$(b)\")\"", "b ; a $() ; echo $()", "quoted" },
    { "echo `a \\`b\\``", "b ; a $() ; echo $()", "backticks" },
    { "diff <(a) >(b)", "a ; b ; diff $() $()", "process substitution" },
    { "echo $((1<<2)) ; a", "<2 ; echo $() ; a", "a shift is no heredoc" },
    { "((x)); cat <<E\nrm x\nE\na", "x ; cat ; a", "behind (( )) it is a heredoc again" },
    { "echo $((a) | (b))", "a ; b ; echo $()", "two subshells" },

    /* heredocs */
    { "cat <<E\nrm x\nE\na", "cat ; a", "a body is data" },
    { "cat <<E\n$(id)\nE\na", "cat ; id ; a", "in which commands may be substituted" },
    { "cat <<'E'\n$(id)\nE\na", "cat ; a", "or not" },
    { "cat <<-E | b\n\tx\n\tE\na", "cat ; b ; a", "tabs" },
    { "cat <<A <<B\nx\nA\ny\nB\na", "cat ; a", "two on a line" },
    { "bash <<E\nrm x\nE\na", "bash ; {rm x\n} ; rm x ; a", "a shell runs it" },
    { "cat <<E | sh\nrm x\nE", "cat ; sh ; {rm x\n} ; rm x", "also through a pipe" },
    { "sh <<< 'rm x'", "sh ; {rm x} ; rm x", "a here-string" },
    { "echo 'rm x' | sh", "echo rm x ; sh ; {rm x\n} ; rm x", "and an echo" },
    { "cat <<E\nno end", "cat", "no end" },
    { "$(cat <<E\nx)\nE\n) a", "cat ; $() a ; a", "in a substitution" },

    /* commands in commands */
    { "sudo rm x", "sudo rm x ; rm x", "sudo" },
    { "sudo -u me -E A=1 rm x", "sudo -u me -E A=1 rm x ; rm x", "its options" },
    { "env -i A=1 -- rm x", "env -i A=1 -- rm x ; -- rm x", "a stray -- is not guessed away" },
    { "env -u A B=1 rm x", "env -u A B=1 rm x ; rm x", "env" },
    { "env -S 'rm x'", "env -S rm x ; {rm x} ; rm x", "env -S" },
    { "timeout -k 1 5 rm x", "timeout -k 1 5 rm x ; rm x", "timeout" },
    { "nice -n 5 ionice -c3 rm x", "nice -n 5 ionice -c3 rm x ; ionice -c3 rm x ; rm x", "nice" },
    { "nohup setsid rm x &", "nohup setsid rm x ; setsid rm x ; rm x", "nohup" },
    { "stdbuf -o L rm x", "stdbuf -o L rm x ; rm x", "stdbuf" },
    { "exec -a n rm x", "exec -a n rm x ; rm x", "exec" },
    { "command rm x", "command rm x ; rm x", "command" },
    { "busybox rm x", "busybox rm x ; rm x", "busybox" },
    { "xargs -0 -n 1 rm x", "xargs -0 -n 1 rm x ; rm x", "xargs" },
    { "find . -exec rm {} \\; -ok id +", "find . -exec rm {} ; -ok id + ; rm {} ; id", "find" },
    { "eval rm 'x; y'", "eval rm x; y ; {rm x; y } ; rm x ; y", "eval" },
    { "watch -n 1 'rm x'", "watch -n 1 rm x ; {rm x } ; rm x", "watch" },
    { "trap 'rm x' EXIT", "trap rm x EXIT ; {rm x} ; rm x", "trap" },
    { "su - me -c 'rm x'", "su - me -c rm x ; {rm x} ; rm x", "su" },
    { "bash -c 'rm x'", "bash -c rm x ; {rm x} ; rm x", "bash -c" },
    { "/bin/sh -ec 'rm x'", "sh -ec rm x ; {rm x} ; rm x", "in a cluster" },
    { "bash -o pipefail -lc 'rm x'", "bash -o pipefail -lc rm x ; {rm x} ; rm x", "with others" },
    { "bash -c -x 'rm x'", "bash -c -x rm x ; {rm x} ; rm x", "the text comes after the options" },
    { "bash script.sh -c x", "bash script.sh -c x", "a script's own option" },
    { "sh -c 'sh -c \"rm x\"'",
      "sh -c sh -c \"rm x\" ; {sh -c \"rm x\"} ; sh -c rm x ; {rm x} ; rm x", "shells in shells" },
    { "bash -c '\"$@\"' _ rm x", "bash -c \"$@\" _ rm x ; {\"$@\"} ; rm x",
      "the parameters of a text" },
};

static void text_is_split_into_commands(void **state)
{
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b;

        buf_init(&b, 65536);
        assert_int_equal(lexer_text(cases[i].text, strlen(cases[i].text), collect, &b), LEXER_DONE);
        if (strcmp(b.data ? b.data : "", cases[i].commands) != 0) {
            print_error("%s: '%s'\n  gave '%s'\n  want '%s'\n", cases[i].because, cases[i].text,
                        b.data ? b.data : "", cases[i].commands);
            wrong++;
        }
        buf_done(&b);
    }
    assert_int_equal(wrong, 0);
}

static void argv_is_unwrapped(void **state)
{
    static const char *const argv[] = { "/usr/bin/env", "A=1", "sh", "-c", "rm 'x y'; id" };
    struct buf b;

    (void)state;
    buf_init(&b, 65536);
    assert_int_equal(lexer_argv(argv, ARRAY_SIZE(argv), collect, &b), LEXER_DONE);
    assert_string_equal(b.data, "env A=1 sh -c rm 'x y'; id ; sh -c rm 'x y'; id ; "
                                "{rm 'x y'; id} ; rm x y ; id");
    buf_done(&b);
}

/* --- bounds ---------------------------------------------------------------------------------- */

static bool ignore(void *ctx, enum lexer_kind kind, const char *text, size_t len)
{
    (void)ctx, (void)kind, (void)text, (void)len;
    return true;
}

static bool stop(void *ctx, enum lexer_kind kind, const char *text, size_t len)
{
    (void)kind, (void)text, (void)len;
    ++*(int *)ctx;
    return false;
}

/* `piece` so often that the whole is about `bytes` long. */
static char *repeated(const char *piece, size_t bytes, size_t *ret_len)
{
    size_t n = strlen(piece), count = bytes / n;
    char *s = malloc(count * n + 1);

    assert_non_null(s);
    for (size_t i = 0; i < count; i++)
        memcpy(s + i * n, piece, n);
    s[count * n] = '\0';
    *ret_len = count * n;
    return s;
}

static const struct {
    const char *piece;
    size_t bytes;
    enum lexer_end want;
    const char *because;
} large[] = {
    { "$(", 20000, LEXER_LIMIT, "10,000 substitutions deep" },
    { "`", 20000, LEXER_DONE, "backticks do not nest by themselves" },
    { "${a:-", 50000, LEXER_LIMIT, "10,000 expansions deep" },
    { "a=(", 30000, LEXER_LIMIT, "arrays in arrays" },
    { "<(", 20000, LEXER_LIMIT, "process substitutions" },
    { "\"$(", 30000, LEXER_LIMIT, "in quotes" },
    { "(", 1000000, LEXER_DONE, "subshells are only counted" },
    { "case a in b) ", 100000, LEXER_DONE, "so are cases" },
    { "[[ ", 1000000, LEXER_DONE, "tests" },
    { "x", 1048576, LEXER_DONE, "one word of a megabyte" },
    { "x ", 1048576, LEXER_DONE, "half a million words" },
    { "x", 1048577, LEXER_LIMIT, "one byte more" },
    { "x;", 1000000, LEXER_LIMIT, "half a million commands" },
    { "sudo ", 1000000, LEXER_LIMIT, "sudo of sudo of sudo" },
    { "<<E ", 1000, LEXER_LIMIT, "more heredocs than a line can have" },
    { "<<E\n", 1000000, LEXER_DONE, "but one a line is fine" },
    { "eval ", 1000, LEXER_LIMIT, "eval of eval" },
    { "\\", 1000000, LEXER_DONE, "backslashes" },
    { "'\"", 1000000, LEXER_DONE, "quotes" },
    { ">", 1000000, LEXER_DONE, "arrows" },
    { "$", 1000000, LEXER_DONE, "dollars" },
    { "{", 1000000, LEXER_DONE, "braces" },
    { "{a,", 1000000, LEXER_DONE, "lists without an end" },
    { "{,}", 1000000, LEXER_LIMIT, "lists of nothing: two to the power of many words" },
    { "{a,b}", 100, LEXER_LIMIT, "a million words" },
    { "{x}", 1000000, LEXER_DONE, "braces that are no lists" },
    { "x=$x$x\n", 1000000, LEXER_DONE, "a value that doubles is given up" },
    { "x=aaaaaaaaaaaaaaaa$x;y=$x$x$x;echo $y$y;", 100000, LEXER_DONE, "values that grow" },
    { "$x ", 1000000, LEXER_DONE, "unknown variables" },
    { "f(){ f $1;g $1;};g(){ f $1;};f x;", 30000, LEXER_DONE, "functions that call each other" },
    { "echo $(echo $(echo x));", 100000, LEXER_DONE, "what is printed into what is printed" },
};

static void bounds_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(large); i++) {
        size_t len;
        AUTO_FREE char *s = repeated(large[i].piece, large[i].bytes, &len);
        enum lexer_end end = lexer_text(s, len, ignore, NULL);

        if (end != large[i].want)
            fail_msg("%s: ended with %d, not %d", large[i].because, end, large[i].want);
    }
}

/* The bounds at their edge: what is within is read, one more is not. */
static void prefixes_and_arguments_are_followed_up_to_their_bound(void **state)
{
    static const struct {
        size_t sudos;
        enum lexer_end want;
    } rows[] = { { 1, LEXER_DONE }, { 16, LEXER_DONE }, { 17, LEXER_LIMIT } };
    size_t len;
    AUTO_FREE char *megabyte = repeated("x", 1 << 20, &len);
    const char *argv[20];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[200] = "";

        for (size_t k = 0; k < rows[i].sudos; k++) {
            strcat(text, "sudo ");
            argv[k] = "sudo";
        }
        strcat(text, "ls");
        argv[rows[i].sudos] = "ls";
        assert_int_equal(lexer_text(text, strlen(text), ignore, NULL), rows[i].want);
        assert_int_equal(lexer_argv(argv, rows[i].sudos + 1, ignore, NULL), rows[i].want);
    }
    for (size_t i = 0; i < ARRAY_SIZE(argv); i++)
        argv[i] = i ? megabyte : "ls";
    assert_int_equal(lexer_argv(argv, 2, ignore, NULL), LEXER_DONE);
    assert_int_equal(lexer_argv(argv, 20, ignore, NULL), LEXER_LIMIT);
}

static void the_callback_can_stop_it(void **state)
{
    int count = 0;

    (void)state;
    assert_int_equal(lexer_text("a; $(b); c", 10, stop, &count), LEXER_STOPPED);
    assert_int_equal(count, 1);
}

/* Any bytes, from a fixed seed: this must end, and under the sanitizers it must be clean. */
static void any_bytes_are_read(void **state)
{
    static const char alphabet[] = "$(){}[]`'\"\\;&|<>\n \t#=!~*?-c0aI/\0\x80\xff";
    uint32_t seed = 1;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[64];

        for (size_t i = 0; i < sizeof(text); i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = alphabet[(seed >> 16) % (sizeof(alphabet) - 1)];
        }
        lexer_text(text, sizeof(text), ignore, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_split_into_commands),
        cmocka_unit_test(argv_is_unwrapped),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(prefixes_and_arguments_are_followed_up_to_their_bound),
        cmocka_unit_test(the_callback_can_stop_it),
        cmocka_unit_test(any_bytes_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
