/*
 * policy/deny/deny.c with the default policy: what is refused, where, by which rule and on which form.
 * Read the tables as the documentation of policy.conf.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"
#include "tests/unit/deny_fixture.h"

#define NOBODY NULL /* no rule refuses it */
#define RAW    POLICY_FORM_RAW
#define WORDS  POLICY_FORM_WORDS
#define ARGV   POLICY_FORM_ARGV

/* Each command as the execute dialect sees it, as another dialect (e2b) does, and on which form. */
static const struct {
    const char *text, *execute, *other;
    enum policy_form form;
    const char *because;
} cases[] = {
    /* 1. rm -rf, in all its spellings */
    { "rm -rf /", "rm-rf", "rm-root", WORDS, "the example of the document" },
    { "rm -fr /", "rm-rf", "rm-root", WORDS, "the other order" },
    { "rm -Rf /", "rm-rf", "rm-root", WORDS, "a capital R" },
    { "rm -r -f /", "rm-rf", "rm-root", WORDS, "apart" },
    { "rm -f -r /", "rm-rf", "rm-root", WORDS, "apart, the other order" },
    { "rm --recursive --force /", "rm-rf", "rm-root", WORDS, "long" },
    { "rm --force --recursive /", "rm-rf", "rm-root", WORDS, "long, the other order" },
    { "rm --rec --fo /", "rm-rf", "rm-root", WORDS, "abbreviated as getopt allows" },
    { "rm -r --force /", "rm-rf", "rm-root", WORDS, "mixed" },
    { "rm    -rf\t\t/", "rm-rf", "rm-root", WORDS, "extra blanks" },
    { "  rm -rf /", "rm-rf", "rm-root", WORDS, "a blank in front" },
    { "/bin/rm -rf /", "rm-rf", "rm-root", WORDS, "path in front" },
    { "/usr/bin/../bin/rm -rf /", "rm-rf", "rm-root", WORDS, "a longer path" },
    { "rm -vrf /", "rm-rf", "rm-root", WORDS, "with other letters" },
    { "rm / -rf", "rm-rf", "rm-root", WORDS, "options behind the name" },
    { "rm -r a b c -f", "rm-rf", NOBODY, WORDS, "far apart" },
    { "rm -rf /*", "rm-rf", "rm-root", WORDS, "all of the root" },
    { "rm -rf //", "rm-rf", "rm-root", WORDS, "two slashes" },
    { "rm -rf /.", "rm-rf", "rm-root", WORDS, "the root by another name" },
    { "rm -rf ~", "rm-rf", "rm-root", WORDS, "a whole home" },
    { "rm -rf ~/", "rm-rf", "rm-root", WORDS, "with a slash" },
    { "rm -rf $HOME", "rm-rf", "rm-root", WORDS, "by its variable" },
    { "rm -rf \"${HOME}\"/*", "rm-rf", "rm-root", WORDS, "all in it" },
    { "rm -rf /etc", "rm-rf", "rm-root", WORDS, "a system folder" },
    { "rm -rf a /usr b", "rm-rf", "rm-root", WORDS, "between others" },
    { "rm -r /", NOBODY, "rm-root", WORDS, "without -f the document does not mind" },
    { "rm -rf --no-preserve-root /x", "rm-rf", "rm-no-preserve-root", WORDS,
      "the option that says it" },
    { "rm -rf node_modules", "rm-rf", NOBODY, WORDS, "ordinary work elsewhere" },
    { "rm -rf ./dist ./build", "rm-rf", NOBODY, WORDS, "ordinary work elsewhere" },
    { "rm -rf /workspace/app/node_modules", "rm-rf", NOBODY, WORDS,
      "below the root is not the root" },
    { "rm -rf /tmp/x", "rm-rf", NOBODY, WORDS, "nor is /tmp/x" },
    { "rm -rf ~/.cache", "rm-rf", NOBODY, WORDS, "a part of a home is not all of it" },
    { "rm -rf .git && git init", "rm-rf", NOBODY, WORDS, "in a list" },

    /* 1, disguised */
    { "r''m -r\\f /", "rm-rf", "rm-root", WORDS, "quotes and backslashes" },
    { "\"rm\" '-rf' /", "rm-rf", "rm-root", WORDS, "quoted words" },
    { "\\rm -rf /", "rm-rf", "rm-root", WORDS, "the alias-escaping backslash" },
    { "rm -r\\\nf /", "rm-rf", "rm-root", WORDS, "a line that goes on" },
    { "rm \\\n  -rf \\\n  /", "rm-rf", "rm-root", WORDS, "over three lines" },
    { "rm$IFS-rf$IFS/", "rm-rf", "rm-root", WORDS, "$IFS" },
    { "rm${IFS}-rf${IFS}/", "rm-rf", "rm-root", WORDS, "${IFS}" },
    { "rm${IFS%??}-rf /", "rm-rf", "rm-root", WORDS, "a part of IFS" },
    { "r$@m -rf /", "rm-rf", "rm-root", WORDS, "an empty parameter" },
    { "$'\\162\\155' -rf /", "rm-rf", "rm-root", WORDS, "octal" },
    { "$'rm' $'\\x2drf' /", "rm-rf", "rm-root", WORDS, "hexadecimal" },
    { "${x:-rm} -rf /", "rm-rf", "rm-root", WORDS, "a default" },
    { "{rm,-rf,/}", "rm-rf", "rm-root", WORDS, "braces" },
    { "rm -{r,f} /", "rm-rf", "rm-root", WORDS, "braces in a word" },
    { "cd /tmp; rm -rf /", "rm-rf", "rm-root", WORDS, "after ;" },
    { "true && rm -rf /", "rm-rf", "rm-root", WORDS, "after &&" },
    { "false || rm -rf /", "rm-rf", "rm-root", WORDS, "after ||" },
    { "yes | rm -rf /", "rm-rf", "rm-root", WORDS, "after |" },
    { "sleep 1 & rm -rf /", "rm-rf", "rm-root", WORDS, "after &" },
    { "ls\nrm -rf /", "rm-rf", "rm-root", WORDS, "on the next line" },
    { "ls;rm -rf /;ls", "rm-rf", "rm-root", WORDS, "without blanks" },
    { "(rm -rf /)", "rm-rf", "rm-root", WORDS, "a subshell" },
    { "{ rm -rf /; }", "rm-rf", "rm-root", WORDS, "a group" },
    { "echo $(rm -rf /)", "rm-rf", "rm-root", WORDS, "a substitution" },
    { "echo \"$(rm -rf /)\"", "rm-rf", "rm-root", WORDS, "in double quotes" },
    { "echo `rm -rf /`", "rm-rf", "rm-root", WORDS, "backticks" },
    { "x=$(rm -rf /)", "rm-rf", "rm-root", WORDS, "an assignment" },
    { "cat <(rm -rf /)", "rm-rf", "rm-root", WORDS, "a process substitution" },
    { "cat <<EOF\n$(rm -rf /)\nEOF", "rm-rf", "rm-root", WORDS, "in a heredoc" },
    { "if true; then rm -rf /; fi", "rm-rf", "rm-root", WORDS, "if" },
    { "if rm -rf /; then ls; fi", "rm-rf", "rm-root", WORDS, "as the condition" },
    { "while :; do rm -rf /; done", "rm-rf", "rm-root", WORDS, "while" },
    { "for d in $list; do rm -rf $d; done", "rm-rf", NOBODY, WORDS,
      "for; what $d is, nobody knows" },
    { "case a in *) rm -rf /;; esac", "rm-rf", "rm-root", WORDS, "case" },
    { "f() { rm -rf /; }; f", "rm-rf", "rm-root", WORDS, "a function" },
    { "! rm -rf /", "rm-rf", "rm-root", WORDS, "not" },
    { "FOO=bar rm -rf /", "rm-rf", "rm-root", WORDS, "an assignment in front" },
    { ">log rm -rf /", "rm-rf", "rm-root", WORDS, "a redirection in front" },
    { "sh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sh -c" },
    { "bash -c \"rm -rf /\"", "rm-rf", "rm-root", WORDS, "bash -c" },
    { "bash -lc 'cd x; rm -rf /'", "rm-rf", "rm-root", WORDS, "bash -lc" },
    { "sh -ec 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sh -ec" },
    { "bash -c 'bash -c \"rm -rf /\"'", "rm-rf", "rm-root", WORDS, "twice" },
    { "dash -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "another shell" },
    { "zsh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "and another" },
    { "eval 'rm -rf /'", "rm-rf", "rm-root", WORDS, "eval" },
    { "eval rm -rf /", "rm-rf", "rm-root", WORDS, "eval of words" },
    { "sudo rm -rf /", "rm-rf", "rm-root", WORDS, "sudo" },
    { "sudo -u root -- rm -rf /", "rm-rf", "rm-root", WORDS, "sudo with options" },
    { "doas rm -rf /", "rm-rf", "rm-root", WORDS, "doas" },
    { "env rm -rf /", "rm-rf", "rm-root", WORDS, "env" },
    { "env -i PATH=/bin rm -rf /", "rm-rf", "rm-root", WORDS, "env with options" },
    { "nohup rm -rf / &", "rm-rf", "rm-root", WORDS, "nohup" },
    { "timeout 5 rm -rf /", "rm-rf", "rm-root", WORDS, "timeout" },
    { "timeout -s KILL 5 rm -rf /", "rm-rf", "rm-root", WORDS, "timeout with options" },
    { "nice -n 19 rm -rf /", "rm-rf", "rm-root", WORDS, "nice" },
    { "ionice -c 3 rm -rf /", "rm-rf", "rm-root", WORDS, "ionice" },
    { "setsid rm -rf /", "rm-rf", "rm-root", WORDS, "setsid" },
    { "stdbuf -oL rm -rf /", "rm-rf", "rm-root", WORDS, "stdbuf" },
    { "time rm -rf /", "rm-rf", "rm-root", WORDS, "time" },
    { "exec rm -rf /", "rm-rf", "rm-root", WORDS, "exec" },
    { "command rm -rf /", "rm-rf", "rm-root", WORDS, "command" },
    { "busybox rm -rf /", "rm-rf", "rm-root", WORDS, "busybox" },
    { "ls / | xargs rm -rf", "rm-rf", NOBODY, WORDS, "xargs; its input is not known" },
    { "find / -exec rm -rf {} +", "rm-rf", NOBODY, WORDS, "find -exec" },
    { "find . -type d -execdir rm -rf / \\;", "rm-rf", "rm-root", WORDS, "find -execdir" },
    { "watch 'rm -rf /'", "rm-rf", "rm-root", WORDS, "watch" },
    { "sudo env A=1 timeout 5 sh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "one in the other" },
    { "echo 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "echo into a shell" },
    { "echo 'rm -rf /' | sudo bash -s", "rm-rf", "rm-root", WORDS, "as root" },
    { "bash <<< 'rm -rf /'", "rm-rf", "rm-root", WORDS, "a here-string" },
    { "bash <<EOF\nrm -rf /\nEOF", "rm-rf", "rm-root", WORDS, "a heredoc for a shell" },
    { "bash -c '\"$@\"' x rm -rf /", "rm-rf", "rm-root", WORDS,
      "parameters that become a command" },
    { "trap 'rm -rf /' EXIT", "rm-rf", "rm-root", WORDS, "at the end" },
    { "coproc rm -rf /", "rm-rf", "rm-root", WORDS, "beside" },
    { "rm '' -rf /", "rm-rf", "rm-root", WORDS, "an empty word in between" },
    { "rm 'a\nb' -rf /", "rm-rf", "rm-root", WORDS, "a newline in a word" },
    { "'rm -rf /", "rm-rf", "rm-root", WORDS, "a blank in a word is a blank: we err on this side" },
    { "ls; rm -rf / 'x", "rm-rf", "rm-root", WORDS, "but what stands before it counts" },

    /* 1, only mentioned */
    { "echo \"rm -rf is bad\"", NOBODY, NOBODY, RAW, "quoted data" },
    { "echo rm -rf /", NOBODY, NOBODY, RAW, "unquoted data" },
    { "grep -r \"rm -rf\" .", NOBODY, NOBODY, RAW, "searching for it" },
    { "git commit -m 'no more rm -rf /'", NOBODY, NOBODY, RAW, "a message" },
    { "cat <<'EOF' > clean.sh\nrm -rf /\nEOF", NOBODY, NOBODY, RAW, "writing it to a file" },
    { "ls # rm -rf /", NOBODY, NOBODY, RAW, "a comment" },
    { "man rm; which rm; command -v rm", NOBODY, NOBODY, RAW, "asking about it" },
    { "farm -rf /", NOBODY, NOBODY, RAW, "a word that only ends in rm" },
    { "git rm -rf old", NOBODY, NOBODY, RAW, "another program's rm" },
    { "docker run --rm -f x", NOBODY, NOBODY, RAW, "an option called rm" },
    { "npm run rm -- -rf", NOBODY, NOBODY, RAW, "a script called rm" },
    { "rm file.txt", NOBODY, NOBODY, RAW, "one file" },
    { "rm -f file.txt", NOBODY, NOBODY, RAW, "without asking" },
    { "rm -r build", NOBODY, NOBODY, RAW, "with asking" },
    { "rm -- my-rf-file", NOBODY, NOBODY, RAW, "a name with rf in it" },
    { "rmdir x; rmmod y", NOBODY, NOBODY, RAW, "other commands" },

    /* 1, by variables that the text itself sets */
    { "x=rm; $x -rf /", "rm-rf", "rm-root", WORDS, "a variable" },
    { "x=rm; \"${x}\" -rf /", "rm-rf", "rm-root", WORDS, "in quotes and braces" },
    { "a=r b=m; $a$b -rf /", "rm-rf", "rm-root", WORDS, "two of them" },
    { "export x=rm && $x -rf /", "rm-rf", "rm-root", WORDS, "export" },
    { "declare -r x=rm; $x -rf /", "rm-rf", "rm-root", WORDS, "declare" },
    { "x='rm -rf /'; $x", "rm-rf", "rm-root", WORDS, "all of it, split into words" },
    { "x=\"rm -rf /\"; eval \"$x\"", "rm-rf", "rm-root", WORDS, "given to eval" },
    { "x=\"rm -rf /\"; sh -c \"$x\"", "rm-rf", "rm-root", WORDS, "given to a shell" },
    { "x=rm sh -c '$x -rf /'", "rm-rf", "rm-root", WORDS, "for one command only" },
    { "export x=rm; bash -c '$x -rf /'", "rm-rf", "rm-root", WORDS, "inherited" },
    { "x=rm; y=$x; $y -rf /", "rm-rf", "rm-root", WORDS, "handed on" },
    { "x=r; x+=m; $x -rf /", "rm-rf", "rm-root", WORDS, "appended" },
    { "x=-rf; rm $x /", "rm-rf", "rm-root", WORDS, "the options" },
    { "x=/; rm -rf $x", "rm-rf", "rm-root", WORDS, "the root" },
    { "x=r; $x''m -rf /", "rm-rf", "rm-root", WORDS, "a part of the name" },
    { "cmd=(rm -rf /); \"${cmd[@]}\"", "rm-rf", "rm-root", WORDS, "an array" },
    { "a=(ls rm); ${a[1]} -rf /", "rm-rf", "rm-root", WORDS, "one of its elements" },
    { "a=(1 # it's\n2); rm -rf /", "rm-rf", "rm-root", WORDS,
      "a quote in a comment in an array is none" },
    { "set -- rm -rf /; \"$@\"", "rm-rf", "rm-root", WORDS, "parameters" },
    { "set -- -rf / rm; $3 $1 $2", "rm-rf", "rm-root", WORDS, "by number" },
    { "for x in rm; do $x -rf /; done", "rm-rf", "rm-root", WORDS, "a loop's variable" },
    { "for d in /bin /etc; do rm -rf $d; done", "rm-rf", "rm-root", WORDS, "each of its values" },
    { "for d in /*; do rm -rf $d; done", "rm-rf", "rm-root", WORDS, "a pattern" },
    { "x=RM; ${x,,} -rf /", "rm-rf", "rm-root", WORDS, "in small letters" },
    { "x=xrmy; ${x:1:2} -rf /", "rm-rf", "rm-root", WORDS, "a part of it" },
    { "x=r_m; ${x/_/} -rf /", "rm-rf", "rm-root", WORDS, "with something replaced" },
    { "x=rmx; ${x%x} -rf /", "rm-rf", "rm-root", WORDS, "without its end" },
    { "x=(rm); x+=(-rf /); \"${x[@]}\"", "rm-rf", "rm-root", WORDS, "an array that grows" },
    { "env -S 'rm -r' -f /", "rm-rf", "rm-root", WORDS, "a text and words behind it" },
    { "$(type -P rm) -rf /", "rm-rf", "rm-root", WORDS, "asked for its place" },
    { "yes 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "again and again" },
    { "x=rm y=x; ${!y} -rf /", "rm-rf", "rm-root", WORDS, "by way of another" },
    { ": ${x:=rm}; $x -rf /", "rm-rf", "rm-root", WORDS, "a default that stays" },
    { "IFS=,; x=rm,-rf,/; $x", "rm-rf", "rm-root", WORDS, "another IFS" },
    { "read -r a b <<< 'rm -rf'; $a $b /", "rm-rf", "rm-root", WORDS, "read from a here-string" },
    { "printf -v x rm; $x -rf /", "rm-rf", "rm-root", WORDS, "printf -v" },
    { "$SHELL -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "the shell by its variable" },
    { "$0 -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "and by its name" },
    { "r${nothing}m -rf /", "rm-rf", "rm-root", WORDS, "a variable that nobody sets is empty" },
    { "r$nothing''m -rf /", "rm-rf", "rm-root", WORDS, "likewise" },
    { "rm -r${z}f /", "rm-rf", "rm-root", WORDS, "in an option" },
    { "$SUDO rm -rf /", "rm-rf", "rm-root", WORDS, "before the command" },
    { "f() { \"$@\"; }; f rm -rf /", "rm-rf", "rm-root", WORDS, "a function's parameters" },
    { "f() { $1 -rf /; }; f rm", "rm-rf", "rm-root", WORDS, "one of them" },
    { "f() { rm \"$@\"; }; f -rf /", "rm-rf", "rm-root", WORDS, "as arguments" },
    { "alias z=rm\nz -rf /", "rm-rf", "rm-root", WORDS, "an alias" },
    { "sh -c '$0 -rf /' rm", "rm-rf", "rm-root", WORDS, "a text's parameters" },
    { "sh -c 'rm $1 $2' x -rf /", "rm-rf", "rm-root", WORDS, "by number" },
    { "rm -rf \"$dir\"/*", "rm-rf", NOBODY, WORDS,
      "what nobody knows is not taken for empty in a file's name" },
    { "rm -rf ${BUILD_DIR}/", "rm-rf", NOBODY, WORDS, "or this would be the root" },
    { "x=rm; echo $x -rf /", NOBODY, NOBODY, RAW, "as data" },
    { "x='rm -rf /'; echo \"$x\" > f", NOBODY, NOBODY, RAW, "as data" },
    { "x=rm; x=ls; $x -rf /", NOBODY, NOBODY, RAW, "the last one counts" },
    { "x=rm; unset x; $x -rf /", NOBODY, NOBODY, RAW, "or none" },
    { "x=rm; read x; $x -rf /", NOBODY, NOBODY, RAW, "what is read is not known" },
    { "x=rm ls; $x -rf /", NOBODY, NOBODY, RAW, "it was for ls only" },
    { "log() { echo \"$@\"; }; log rm -rf /", NOBODY, NOBODY, RAW, "a function that only prints" },
    { "alias rm='rm -i'", NOBODY, NOBODY, RAW, "an alias that is careful" },
    { "RM='rm -rf' make clean", NOBODY, NOBODY, RAW, "a setting of make" },
    { "sh -c 'echo \"$@\"' x rm -rf /", NOBODY, NOBODY, RAW, "parameters that are printed" },
    { "args=(-r -n); grep \"${args[@]}\" rm .", NOBODY, NOBODY, RAW, "options in an array" },
    { "f() { [ $1 -gt 0 ] && f $(($1 - 1)); }; f 5", NOBODY, NOBODY, RAW,
      "a function that calls itself" },

    /* 1, by what commands print */
    { "$(echo rm) -rf /", "rm-rf", "rm-root", WORDS, "echo" },
    { "`echo rm` -rf /", "rm-rf", "rm-root", WORDS, "in backticks" },
    { "x=$(printf rm); $x -rf /", "rm-rf", "rm-root", WORDS, "into a variable" },
    { "$(which rm) -rf /", "rm-rf", "rm-root", WORDS, "which" },
    { "r$(true)m -rf /", "rm-rf", "rm-root", WORDS, "nothing at all" },
    { "printf '%s\\n' 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "printf into a shell" },
    { "printf '\\x72m -rf /' | sh", "rm-rf", "rm-root", WORDS, "with escapes" },
    { "echo -e '\\0162m -rf /' | sh", "rm-rf", "rm-root", WORDS, "of echo too" },
    { "echo 'rm -rf /' | cat | sh", "rm-rf", "rm-root", WORDS, "by way of cat" },
    { "echo cm0gLXJmIC8= | base64 -d | sh", NOBODY, NOBODY, RAW, "what exec-time policy is for" },
    { "sh <(echo rm -rf /)", "rm-rf", "rm-root", WORDS, "a process substitution as a script" },
    { "bash < <(echo 'rm -rf /')", "rm-rf", "rm-root", WORDS, "and as input" },
    { ". /dev/stdin <<< 'rm -rf /'", "rm-rf", "rm-root", WORDS, "source" },
    { "echo 'rm -rf /' | at now", "rm-rf", "rm-root", WORDS, "later" },
    { "echo / | xargs rm -rf", "rm-rf", "rm-root", WORDS, "what xargs reads" },
    { "echo -rf / | xargs rm", "rm-rf", "rm-root", WORDS, "the options too" },
    { "echo / | xargs -I{} sh -c 'rm -rf {}'", "rm-rf", "rm-root", WORDS, "put in its place" },
    { "echo cm0gLXJmIC8= | base64 -d", NOBODY, NOBODY, RAW, "nobody runs it" },
    { "echo 'rm -rf /' | tee notes | wc -c", NOBODY, NOBODY, RAW, "nor this" },
    { "echo / | xargs ls", NOBODY, NOBODY, RAW, "xargs of something else" },
    { "git commit -m \"$(cat <<'E'\nrm -rf / is gone\nE\n)\"", NOBODY, NOBODY, RAW,
      "a message by heredoc" },

    /* 1, by other wrappers and groups */
    { "time { rm -rf /; }", "rm-rf", "rm-root", WORDS, "time of a group" },
    { "time -p rm -rf /", "rm-rf", "rm-root", WORDS, "time of a command" },
    { "coproc X { rm -rf /; }", "rm-rf", "rm-root", WORDS, "a named coprocess" },
    { "env - rm -rf /", "rm-rf", "rm-root", WORDS, "env with a lone dash" },
    { "env --split-string 'rm -rf /'", "rm-rf", "rm-root", WORDS, "env that splits" },
    { "chroot --userspec 0:0 / rm -rf /", "rm-rf", "rm-root", WORDS, "chroot with options" },
    { "flock x -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "flock with a text behind the file" },
    { "runuser -u nobody -- rm -rf /", "rm-rf", "rm-root", WORDS, "runuser" },
    { "su --session-command='rm -rf /' root", "rm-rf", "rm-root", WORDS, "su" },
    { "sg root 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sg" },
    { "fd . -x rm -rf /", "rm-rf", "rm-root", WORDS, "fd" },
    { "parallel ::: 'rm -rf /'", "rm-rf", "rm-root", WORDS, "parallel" },
    { "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf /", "rm-rf", "rm-root", WORDS,
      "the dynamic linker" },
    { "setarch x86_64 rm -rf /", "rm-rf", "rm-root", WORDS, "setarch" },
    { "choom -n 0 -- rm -rf /", "rm-rf", "rm-root", WORDS, "choom" },
    { "fish -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "yet another shell" },
    { "for ((i = 0; i < 1; i++)); do rm -rf /; done", "rm-rf", "rm-root", WORDS,
      "an arithmetic loop" },
    { "{rm,-rf,/{,}}", "rm-rf", "rm-root", WORDS, "braces in braces" },
    { "{rm,'-rf',/}", "rm-rf", "rm-root", WORDS, "with quotes in them" },
    { "{r,x}{m,y} -rf /", "rm-rf", "rm-root", WORDS, "two lists in a word" },
    { "r{m..m} -rf /", "rm-rf", "rm-root", WORDS, "a sequence" },
    { "rm -rf /home/user", "rm-rf", "rm-root", WORDS, "a home by its path" },
    { "rm -rf ~root", "rm-rf", "rm-root", WORDS, "by its owner" },
    { "rm -rf /./etc/", "rm-rf", "rm-root", WORDS, "a path round about" },
    { "rm -rf /usr/../", "rm-rf", "rm-root", WORDS, "and back" },
    { "rm -rf /*/", "rm-rf", "rm-root", WORDS, "all folders of the root" },
    { "command -v shutdown; type reboot", NOBODY, NOBODY, RAW, "asking for it" },
    { "touch file{1..2000}", NOBODY, NOBODY, RAW, "many words" },
    { "mkdir -p a/{b,c}/{d,e}", NOBODY, NOBODY, RAW, "folders" },
    { "ls | xargs -n1 echo rm -rf", NOBODY, NOBODY, RAW, "xargs of echo" },
    { "docker run --rm x rm -rf /tmp", NOBODY, NOBODY, RAW, "in another container" },

    /* 2. shutdown, 3. reboot */
    { "shutdown", "shutdown", "power", WORDS, "the word" },
    { "shutdown -h now", "shutdown", "power", WORDS, "with options" },
    { "sudo /sbin/shutdown now", "shutdown", "power", WORDS, "as root, path in front" },
    { "poweroff", "shutdown", "power", WORDS, "another name" },
    { "halt -p", "shutdown", "power", WORDS, "and another" },
    { "systemctl poweroff", "shutdown", "power", WORDS, "by systemd" },
    { "init 0", "shutdown", NOBODY, WORDS, "by init" },
    { "reboot", "reboot", "power", WORDS, "the word" },
    { "sudo reboot -f", "reboot", "power", WORDS, "with options" },
    { "systemctl --force reboot", "reboot", "power", WORDS, "by systemd" },
    { "init 6", "reboot", NOBODY, WORDS, "by init" },
    { "echo shutdown", NOBODY, NOBODY, RAW, "a mention" },
    { "grep reboot /var/log/syslog", NOBODY, NOBODY, RAW, "a search" },
    { "./shutdown-tests.sh", NOBODY, NOBODY, RAW, "a longer name" },
    { "npm run reboot", NOBODY, NOBODY, RAW, "somebody's script" },
    { "git init 0; systemctl status", NOBODY, NOBODY, RAW, "innocent neighbours" },

    /* 4. mkfs */
    { "mkfs /dev/vdb", "mkfs", "mkfs-device", WORDS, "the word" },
    { "mkfs.ext4 /dev/vdb1", "mkfs", "mkfs-device", WORDS, "with a type" },
    { "mkfs -t xfs disk.img", "mkfs", NOBODY, WORDS, "an image is a file like others" },
    { "/sbin/mkfs.xfs -f disk.img", "mkfs", NOBODY, WORDS, "path in front" },
    { "mke2fs x.img", "mkfs", NOBODY, WORDS, "the program behind it" },
    { "man mkfs", NOBODY, NOBODY, RAW, "reading about it" },
    { "ls mkfs.txt", NOBODY, NOBODY, RAW, "a file" },

    /* 5. the fork bomb */
    { ":(){ :|:& };:", "fork-bomb", "fork-bomb", RAW, "as everybody writes it" },
    { ": ( ) { : | : & } ; :", "fork-bomb", "fork-bomb", RAW, "with blanks" },
    { ":()\n{\n  :|:&\n};:", "fork-bomb", "fork-bomb", RAW, "over lines" },
    { "bash -c ':(){ :|:& };:'", "fork-bomb", "fork-bomb", RAW, "given to a shell" },
    { "bash -c $'\\x3a(){ :|:& };:'", "fork-bomb", "fork-bomb", RAW, "encoded" },
    { "bomb() { bomb | bomb & }; bomb", "fork-bomb-named", "fork-bomb", RAW, "another name" },
    { "f(){ f|f& };f", "fork-bomb-named", "fork-bomb", RAW, "a short one" },
    { "function : { :|:& };:", "fork-bomb", "fork-bomb", RAW, "by its keyword" },
    { ":()(:|:&);:", "fork-bomb", "fork-bomb", RAW, "a subshell as its body" },
    { ".(){ .|.& };.", "fork-bomb-named", "fork-bomb", RAW, "a name of signs" },
    { "function bomb { bomb & bomb & }; bomb", "fork-bomb-named", "fork-bomb", RAW,
      "without a pipe" },
    { "f() { g | h; }; f", NOBODY, NOBODY, RAW, "an ordinary function" },
    { "f() { f2 | f; }; x() { x-y & z; }", NOBODY, NOBODY, RAW, "names that only begin alike" },
    { "retry() { \"$@\" && return; sleep 1; }; retry make", NOBODY, NOBODY, RAW, "nor this" },
    { ": > file; while :; do sleep 1; done", NOBODY, NOBODY, RAW, "the ordinary uses of :" },

    /* 6. dd if= */
    { "dd if=/dev/zero of=x bs=1M count=1", "dd-if", NOBODY, WORDS, "harmless elsewhere" },
    { "dd of=x if=y", "dd-if", NOBODY, WORDS, "the other order" },
    { "d\"\"d i'f'=/dev/zero", "dd-if", NOBODY, WORDS, "disguised" },
    { "dd if=x of=/dev/nvme0n1", "dd-if", "dd-device", WORDS, "over a disk" },
    { "cat x | dd of=/dev/vda", NOBODY, "dd-device", WORDS,
      "without if=, the document does not mind" },
    { "dd --help; add if=x", NOBODY, NOBODY, RAW, "asking about it" },

    /* 7. /dev/sd */
    { "cat x > /dev/sda", "dev-sd", "write-device", WORDS, "a redirection" },
    { "cat x >/dev/s''da", "dev-sd", "write-device", WORDS, "disguised" },
    { "echo x | tee /dev/sdb1", "dev-sd", NOBODY, WORDS, "an argument" },
    { "mount /dev/sda1 /mnt", "dev-sd", NOBODY, WORDS, "any mention in a command's words" },
    { "cat //dev//sda", "dev-sd", NOBODY, WORDS, "more slashes" },
    { "cp x --target=/dev/sda", "dev-sd", NOBODY, WORDS, "in an option" },
    { "cat x > /dev/null 2>&1", NOBODY, NOBODY, RAW, "not a disk" },
    { "echo done >/dev/stdout", NOBODY, NOBODY, RAW, "not a disk either" },
    { "cat <<'E' > fstab\n/dev/sda1 / ext4\nE", NOBODY, NOBODY, RAW, "data in a heredoc" },
    { "ls /workspace/dev/sdk", NOBODY, NOBODY, RAW, "a folder of our own" },

    /* 8. chmod 777 */
    { "chmod 777 x", "chmod-777", NOBODY, WORDS, "the mode" },
    { "chmod -R 777 .", "chmod-777", NOBODY, WORDS, "-R" },
    { "chmod 0777 x", "chmod-777", NOBODY, WORDS, "0777" },
    { "chmod 4777 x", "chmod-777", NOBODY, WORDS, "and set-uid" },
    { "chmod a+rwx x", "chmod-777", NOBODY, WORDS, "a+rwx" },
    { "chmod a=rwx x", "chmod-777", NOBODY, WORDS, "a=rwx" },
    { "chmod ugo+rwx x", "chmod-777", NOBODY, WORDS, "ugo+rwx" },
    { "chmod --recursive 777 x", "chmod-777", NOBODY, WORDS, "a long option" },
    { "find . -type f -exec chmod 777 {} \\;", "chmod-777", NOBODY, WORDS, "by find" },
    { "chmod 755 x", NOBODY, NOBODY, RAW, "an ordinary mode" },
    { "chmod 1777 /tmp", NOBODY, NOBODY, RAW, "what /tmp has" },
    { "chmod u+rwx x", NOBODY, NOBODY, RAW, "for the owner" },
    { "chmod +x run.sh", NOBODY, NOBODY, RAW, "the everyday one" },
    { "chmod 644 file777", NOBODY, NOBODY, RAW, "a name with 777 in it" },

    /* ordinary work */
    { "npm list", NOBODY, NOBODY, RAW, "from the document" },
    { "node --version", NOBODY, NOBODY, RAW, "from the document" },
    { "npm install && npm run build", NOBODY, NOBODY, RAW, "from the document" },
    { "pwd", NOBODY, NOBODY, RAW, "from the document" },
    { "python3 -c 'print(\"rm -rf /\")'", NOBODY, NOBODY, RAW, "another language's string" },
    { "git clone https://example.org/x.git && cd x && make -j2", NOBODY, NOBODY, RAW, "a build" },
    { "find . -name '*.o' -delete", NOBODY, NOBODY, RAW, "find without -exec" },
    { "tar czf - src | ssh host 'cat > x'", NOBODY, NOBODY, RAW, "a pipe" },
    { "for f in *.c; do gcc -c \"$f\" || exit 1; done", NOBODY, NOBODY, RAW, "a loop" },
    { "sed -i 's/rm -rf/true/' Makefile", NOBODY, NOBODY, RAW, "editing" },
    { "", NOBODY, NOBODY, RAW, "nothing at all" },
};

static int compare(const char *dialect, const struct policy *p, const char *text, const char *rule,
                   enum policy_form form, const char *because)
{
    struct policy_result r = deny_check(p, dialect, text);

    if (deny_is_as_wanted(&r, rule, form))
        return 0;
    print_error("%s: %s (%s): got %s on %s ('%s'), want %s\n", dialect, text, because,
                r.denied ? r.rule : "nothing", policy_form_name(r.form), r.matched,
                rule ? rule : "nothing");
    return 1;
}

static void the_default_policy_does_what_it_says(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    int wrong = 0;

    (void)state;
    assert_true(ARRAY_SIZE(cases) >= 150);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        wrong +=
            compare("execute", p, cases[i].text, cases[i].execute, cases[i].form, cases[i].because);
        wrong += compare("e2b", p, cases[i].text, cases[i].other, cases[i].form, cases[i].because);
    }
    assert_int_equal(wrong, 0);
    policy_free(p);
}

static void every_rule_of_the_default_policy_is_exercised(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");

    (void)state;
    for (size_t i = 0; i < policy_rule_count(p); i++) {
        struct policy_rule_info info;
        bool seen = false;

        policy_rule_get(p, i, &info);
        for (size_t k = 0; k < ARRAY_SIZE(cases); k++)
            seen |= (cases[k].execute && strcmp(cases[k].execute, info.name) == 0) ||
                    (cases[k].other && strcmp(cases[k].other, info.name) == 0);
        if (!seen)
            fail_msg("no command in the table is refused by rule '%s'", info.name);
    }
    policy_free(p);
}

static void settings_follow_the_dialect(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    struct policy_query execute = { .dialect = "execute" }, e2b = { .dialect = "e2b" };

    (void)state;
    assert_true(policy_exec_time(p, &execute));
    assert_false(policy_exec_time(p, &e2b));
    assert_string_equal(policy_profile(p, &execute), "default");
    assert_int_equal(strlen(policy_hash(p)), 64);
    policy_free(p);
}

/* --- exec time ------------------------------------------------------------------------------- */

static const struct {
    const char *argv[6];
    const char *rule;
    enum policy_form form;
    const char *because;
} execs[] = {
    { { "rm", "-rf", "/" }, "rm-rf", ARGV, "what base64 | sh starts in the end" },
    { { "/bin/rm", "-r", "-f", "x y" }, "rm-rf", ARGV, "by its path" },
    { { "sh", "-c", "rm -rf /" }, "rm-rf", ARGV, "what os.system() starts" },
    { { "sh", "-c", ":(){ :|:& };:" }, "fork-bomb", RAW, "a bomb that never gets to an execve" },
    { { "busybox", "rm", "-rf", "/" }, "rm-rf", ARGV, "busybox" },
    { { "echo", "rm", "-rf", "/" }, NOBODY, ARGV, "data" },
    { { "echo", "$(rm -rf /)" }, NOBODY, ARGV, "no shell reads this again" },
    { { "grep", ":(){", "x" }, NOBODY, ARGV, "nor this" },
    { { "rm", "-r", "a -f" }, "rm-rf", ARGV, "a blank in a word is a blank" },
    { { "rm", "-r", "a-f" }, NOBODY, ARGV, "a file's name may be strange" },
    { { NULL }, NOBODY, ARGV, "no argv at all" },
};

static void real_arguments_are_checked(void **state)
{
    struct policy *p = deny_load(TEST_SRCDIR "/policy/policy.conf");
    struct policy_query q = { .dialect = "execute" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(execs); i++) {
        struct policy_result r;
        size_t argc = 0;

        while (argc < 6 && execs[i].argv[argc])
            argc++;
        policy_check_argv(p, &q, execs[i].argv, argc, &r);
        if (!deny_is_as_wanted(&r, execs[i].rule, execs[i].form))
            fail_msg("%s: got %s on %s", execs[i].because, r.denied ? r.rule : "nothing",
                     policy_form_name(r.form));
    }
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_policy_does_what_it_says),
        cmocka_unit_test(every_rule_of_the_default_policy_is_exercised),
        cmocka_unit_test(settings_follow_the_dialect),
        cmocka_unit_test(real_arguments_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
