"""The list of a process's open files."""

import os

from tracer.session import descriptors


def test_a_process_with_many_open_files_of_one_name_costs_a_bounded_number_of_comparisons(
    monkeypatch,
):
    compared = []
    ask = descriptors._Shared._compared

    def counted(self, *pair):
        compared.append(pair)
        return ask(self, *pair)

    monkeypatch.setattr(descriptors._Shared, "_compared", counted)
    opened = [os.open(__file__, os.O_RDONLY) for _ in range(200)]
    opened.append(os.dup(opened[0]))
    try:
        os.lseek(opened[0], 7, os.SEEK_SET)
        rows, left_out = descriptors.descriptors([os.getpid()])
    finally:
        for fd in opened:
            os.close(fd)
    numbers = {fd: number for _, _, _, fd, number, *_ in rows if fd in opened}
    positions = {fd: position for _, _, _, fd, _, position, *_ in rows if fd in opened}
    assert not left_out
    assert len(numbers) == len(opened)
    told = [number for fd, number in numbers.items() if number is not None]
    assert len(set(told)) == descriptors._MOST_ALIKE
    assert numbers[opened[0]] == numbers[opened[-1]] is not None
    assert positions[opened[0]] == positions[opened[-1]] == 7
    assert len(compared) <= descriptors._MOST_ALIKE * len(rows)
