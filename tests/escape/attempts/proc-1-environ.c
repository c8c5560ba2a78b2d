// class: processes
// promise: init's environment and maps are not read
// refused: EACCES
// as: root
// weak: opens
#include "attempt.h"

int main(void)
{
    return read_to_stdout("/proc/1/maps") == ESCAPED ? ESCAPED : read_to_stdout("/proc/1/environ");
}
