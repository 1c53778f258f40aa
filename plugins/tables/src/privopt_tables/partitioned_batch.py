"""The driver's side of a batch over a partitioned Spark or Dask table. It charges subjects between two passes.

Source: docs/adr/0028-partitions.md. The workers' side is :mod:`.partitions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import polars as pl
from attrs import define, evolve

from privopt.api.released import warn_all
from privopt.declare.column_texts import texts_of
from privopt.declare.name_forms import normal_form
from privopt.declare.problems_in_memory import frame_of
from privopt.errors import DoesNotHoldError, UsageError, cut
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Digest
from privopt.ledger.charge import Charge
from privopt.ledger.entries import AccountKey
from privopt.ledger.ledger import Ledger
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.apply_parts import cost_of_row, drop_columns
from privopt_tables.charge_rows import check_no_calendar
from privopt_tables.find_positions import ColumnSearch
from privopt_tables.options import ApplyOptions
from privopt_tables.partition_sums import ChargedRows
from privopt_tables.partitions import TALLY, Partitions
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

__all__ = ["PartitionedBatch"]


@define(kw_only=True, eq=False)
class PartitionedBatch:
    """The driver's side of a batch over a partitioned table. It charges subjects between two passes over the table.

    The first pass (:meth:`tally`) computes keyed sums over each subject's rows, and the second pass draws the reports.

    Attributes:
        partitions: The object used by the workers in the first pass.
        batch: The batch, with its key and record.
        ledger: The ledger to charge.
        cost: The cost of one row.
        options: A digest of the release, the columns and the options. :meth:`charge` adds the rows' digests to a copy
            of this digest.
        keep: The columns to keep even if they contain the secret.
        is_charged: Whether the subjects have been charged. The second pass may run only if they have.
    """

    partitions: Partitions
    batch: Batch
    ledger: Ledger
    cost: Cost
    options: Digest
    keep: tuple[str, ...] = ()
    is_charged: bool = False

    @classmethod
    @contextmanager
    def open_batch(
        cls, opened: OpenedFolder, name: str, charge: Charge, row: str, secret: Secret, options: ApplyOptions
    ) -> Iterator[Self]:
        """Open a batch for the duration of a ``with`` block.

        If the rows are charged and the block exits normally, the batch ends with the block. If the block raises an
        error, the batch stays open, and the same code can be run again.

        Args:
            opened: The verified release.
            name: The batch's name.
            charge: The ledger, and the column of subjects.
            row: The column of row ids, which must be distinct among the rows of a subject.
            secret: The columns that hold the secret.
            options: The options. Only the positions, their maximum distance from a record and the columns to keep are
                used.

        Raises:
            UsageError: The release has no matrix, reports traces or cannot be charged, the batch has already ended or
                is running in another process, the ledger has charges from a batch with this name but the batch's key is
                gone, or the ledger has a calendar limit.
            InputError: The ledger's file, its key file or the batch's key file is invalid.
            DoesNotHoldError: The ledger was changed, the batch's record is invalid, or the key of a batch that has
                begun is missing.
        """
        release, problem = matrix_of(opened, traces=False)
        sums, subject, row = sha256(opened.folder / SUMS), normal_form(str(charge.subject)), normal_form(row)
        with Batch(ledger=charge.path, name=name).open_folder() as batch, charge.open_ledger() as ledger:
            cost = cost_of_row(opened, options, "batch")
            check_no_calendar(ledger, cost.account)
            protector = evolve(
                PositionProtector.of(release, problem.data, secret, options),
                row_key_columns=(subject, row),
            )
            digest = Digest(batch.key())
            columns = {name: position.columns for name, position in protector.positions}
            # A repeated batch must have the same release, columns and options, so their digest is compared with the
            # recorded one.
            bound = [sums, subject, row, options.max_snap, columns]
            digest.add(b"partitions", json.dumps(bound, sort_keys=True).encode())
            partitioned = cls(
                partitions=Partitions(protector=protector, access=batch.grant_access(), release=sums),
                batch=batch,
                ledger=ledger,
                cost=evolve(cost, purpose=batch.purpose(ledger.purposes())),
                options=digest,
                keep=options.keep,
            )
            # An error in the block is raised at this line, so the batch is not ended and can be repeated.
            yield partitioned
            if partitioned.is_charged:
                batch.end()

    @property
    def tally(self) -> Callable[[Any], Any]:
        """The function to apply to each partition in the first pass: :meth:`Partitions.tally`."""
        return self.partitions.tally

    def charge(self, tallies: object) -> Partitions:
        """Durably charge every subject for its rows, with one ledger entry per subject.

        A :class:`PrivoptWarning` is issued for each column that contains the secret. Such a column is dropped unless it
        is listed in :attr:`keep` or is the column of subjects or row ids. A column whose name suggests a position or a
        place is also kept if it contains the secret in fewer than half of the rows.

        Args:
            tallies: The results of the first pass over all partitions, combined into one table. It can be a data frame
                of any supported library.

        Returns:
            The object that draws reports in the second pass, for the tallied rows only. If a subject's remaining budget
            does not cover all its rows, only its first rows in the order of their ids get reports.

        Raises:
            UsageError: The tallies are not the results of the first pass, a subject has rows in more than one
                partition, or the batch was started with another table or other options.
            DoesNotHoldError: The batch has charges, but its record is missing.
        """
        table = frame_of(tallies, "tallies")
        numbers = ("rows", "total", "squares")
        if {"subject", "digest", "search", *numbers} - {*table.columns}:
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got columns {', '.join(table.columns)}")
        # The digest is copied, so that a repeated call starts from the options alone.
        digest = evolve(self.options)
        # The digests are summed, because a sum does not depend on the order of partitions.
        for text in texts_of(table["digest"]).drop_nulls().to_list():
            digest.add_sum(text)
        columns = {name: table[name].to_list() for name in numbers}
        sums = pl.DataFrame({"subject": texts_of(table["subject"]), **columns}).drop_nulls("subject")
        if (sums["rows"] < 1).any():
            raise UsageError("tallies must be what tally gives, got a subject without rows")
        if sums["subject"].is_duplicated().any():
            raise UsageError(
                "rows of a subject must be in one partition, got two: repartition the table by subject. If names are "
                "spelled in several ways (blanks, 7 and 7.0, forms of Unicode), write them in one way first"
            )
        protector = self._drop_columns(table["search"].drop_nulls().to_list())
        paid = self.ledger.charges_for(self.cost.purpose)
        # Without its record, a charged batch could be continued with another table, for whose reports nobody was
        # charged.
        if paid and not self.batch.record:
            raise DoesNotHoldError(f"{self.batch.folder}: changed: the batch was charged, and its record is gone")
        self.batch.begin(digest)
        counts = dict(sums.select("subject", "rows").iter_rows())
        granted = self._charge_subjects(
            counts,
            # Amounts that an earlier run charged, converted to numbers of rows.
            {account: int(sum(charges) / self.cost.amount[0]) for account, charges in paid.items()},
        )
        self.is_charged = True
        warn_all(protector.leak_warnings)
        subjects, totals, squares = (sums[name].to_list() for name in ("subject", "total", "squares"))
        return evolve(
            self.partitions,
            protector=protector,
            granted={name: granted[name] for name, rows in counts.items() if granted[name] < rows},
            charged=ChargedRows.of(self.batch.key(), subjects, totals, squares),
        )

    def _drop_columns(self, searches: Sequence[str]) -> PositionProtector:
        """Return a protector that drops the columns in which the first pass found the secret.

        The columns of subjects and row ids are always kept, because the second pass needs them.

        Args:
            searches: The evidence from each partition, as JSON text.

        Raises:
            UsageError: A column to keep does not exist in the table, or the evidence is malformed.
        """
        protector = self.partitions.protector
        try:
            parts = [json.loads(text) for text in searches]
            names = list(dict.fromkeys(name for part in parts for name in part["names"]))
            search = ColumnSearch(names)
            for part in parts:
                search.add_json(part["evidence"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got another search") from None
        for name in self.keep:
            if names and name not in names:
                raise UsageError(f"keep must name columns of the table that hold no secret, got {cut(name)}")
        assert protector.row_key_columns is not None  # open_batch has set it
        names_to_keep = (*self.keep, *protector.row_key_columns)
        return drop_columns(protector, search, names, ApplyOptions(keep=names_to_keep))

    def _charge_subjects(self, counts: Mapping[str, int], paid: Mapping[AccountKey, int]) -> dict[str, int]:
        """Charge each subject for its rows, up to the limit, unless an earlier run has already charged it.

        Args:
            counts: The number of rows of each subject.
            paid: The number of rows that earlier runs of the batch have charged to each account.

        Returns:
            The number of rows that get a report, keyed by subject.
        """
        unit = self.cost.account
        accounts = {name: AccountKey(self.ledger.name_of(name), unit) for name in counts}
        # A subject that an earlier run charged is not charged again, even if that run granted it fewer rows than it
        # has.
        granted = {name: min(rows, paid.get(accounts[name], 0)) for name, rows in counts.items()}
        due = {name: rows for name, rows in counts.items() if not granted[name]}
        while due:
            is_charged = self.ledger.charge_each(list(due), self.cost, times=list(due.values()))
            refused = []
            for name, is_name_charged in zip(due, is_charged, strict=True):
                if is_name_charged:
                    # All rows of a subject are charged at once. If the charge is refused, it is tried again with as
                    # many rows as the budget allows.
                    granted[name] = due[name]
                else:
                    refused.append((name, self.ledger.account(name, unit=unit).left or 0))
            # The new number of rows is always smaller than the refused one, so that the loop ends even if the limit
            # changes in the meantime.
            affordable = {
                name: min(due[name] - 1, int(remaining_budget / self.cost.amount[0]))
                for name, remaining_budget in refused
            }
            due = {name: rows for name, rows in affordable.items() if rows}
        return granted
