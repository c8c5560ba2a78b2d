# class: proc
# promise: interrupts are not steered
# refused: EROFS
# control: host
mask=$(cat /proc/irq/default_smp_affinity)
echo "${mask:-1}" > /proc/irq/default_smp_affinity # as it is: the control writes it on the host
