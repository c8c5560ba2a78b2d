# class: proc
# promise: interrupts are not steered
# refused: EROFS
echo 1 > /proc/irq/default_smp_affinity
