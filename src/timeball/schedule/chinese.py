"""Schedules in Chinese. Owns the words; what there is to say comes from `phrases`."""

from __future__ import annotations

from timeball.schedule.days import Special
from timeball.schedule.durations import split_duration
from timeball.schedule.expression import Expression
from timeball.schedule.fields import Field, Item
from timeball.schedule.phrases import (
    clock_times,
    is_open,
    named,
    on_the_minute,
    runs_through,
    shortened,
    values_of,
    weekday,
    whole_hours,
)

_WEEKDAYS = ["周日", "周一", "周二", "周三", "周四", "周五", "周六"]
_UNITS = {"second": "秒", "minute": "分", "hour": "点", "day": "日"}
_LENGTHS = {"week": "周", "day": "天", "hour": "小时", "minute": "分钟", "second": "秒"}


class Chinese:
    """The language `zh`."""

    def cron(self, expression: Expression) -> str:
        date, time = _date(expression), _time(expression)
        if is_open(expression.day) and is_open(expression.weekday) and not is_open(expression.hour):
            date = f"{date} 每天".strip()
        return " ".join(part for part in (_years(expression), date, time) if part)

    def interval(self, microseconds: int) -> str:
        return "每 " + " ".join(f"{number} {_LENGTHS[unit]}" for number, unit in split_duration(microseconds))

    def after(self, microseconds: int) -> str:
        parts = [f"{number} {_LENGTHS[unit]}" for number, unit in split_duration(microseconds)]
        return f"上次运行结束后 {' '.join(parts)}"

    def once(self, shown: str, timezone: str) -> str:
        return f"仅一次：{shown}（{timezone}）"

    def reboot(self) -> str:
        return "集群每次启动时运行一次"

    def manual(self) -> str:
        return "仅手动触发"

    def union(self, parts: list[str]) -> str:
        return "；以及".join(parts)

    def in_zone(self, text: str, timezone: str) -> str:
        return f"{text}（{timezone}）"

    def bounded(self, text: str, since: str | None, until: str | None) -> str:
        return text + (f"，从 {since} 起" if since else "") + (f"，到 {until} 为止" if until else "")

    def closed(self, text: str, name: str, roll: str) -> str:
        of = f"日历“{name}”的" if name else ""
        if roll == "skip":
            return f"{text}，{of}关闭时间除外"
        return f"{text}，{of}休息日除外（改到{'下' if roll == 'next' else '上'}一个开放日）"


def _joined(texts: list[str]) -> str:
    return "、".join(shortened(texts))


def _range(first: str, last: str) -> str:
    return f"{first}至{last}" if first.startswith("周") else f"{first}至 {last}"


def _time(expression: Expression) -> str:
    times = clock_times(expression)
    if times:
        return _joined(times)
    parts = [_hour(expression)]
    flows = not on_the_minute(expression) and runs_through(expression.second)
    if not (flows and is_open(expression.minute)):
        parts.append(_unit(expression.minute))
    if not on_the_minute(expression):
        parts.append(_unit(expression.second))
    return " ".join(part for part in parts if part)


def _hour(expression: Expression) -> str:
    field, through = expression.hour, runs_through(expression.minute)
    if is_open(field):
        return "" if through else "每小时"
    whole = whole_hours(field)
    if whole and through:
        return f"{whole[0]:02d}:00 至 {whole[1]:02d}:59"
    values = values_of(field)
    return f"{_joined([str(value) for value in values])} 点" if values is not None else _unit(field)


def _unit(field: Field) -> str:
    name = field.span.name
    if is_open(field):
        return f"每{_LENGTHS[name]}"
    values = values_of(field)
    if values is not None:
        return f"第 {_joined([str(value) for value in values])} {_UNITS[name]}"
    if runs_through(field):
        item = field.items[0]
        since = f"从第 {item.first} {_UNITS[name]}起" if item.first else ""
        return f"{since}每 {item.step} {_LENGTHS[name]}"
    return _joined([_stretch(item, _UNITS[name], _LENGTHS[name]) for item in field.items])


def _stretch(item: Item, unit: str, length: str) -> str:
    if item.form == "value":
        return f"{item.first} {unit}"
    if item.form in {"every", "from"}:
        return f"从第 {item.first} {unit}起每 {item.step} {length}"
    text = f"{item.first} 至 {item.last} {unit}"
    return text if item.step == 1 else f"{text}内每 {item.step} {length}"


def _date(expression: Expression) -> str:
    months = _months(expression)
    within = months if months and expression.both else "每月"
    day = "" if is_open(expression.day) else _days(expression.day, within)
    weekdays = "" if is_open(expression.weekday) else _weekdays(expression.weekday, within)
    if day and weekdays:
        text = f"{day}且为{weekdays}" if expression.both else f"{day}或{weekdays}"
    else:
        text = day or weekdays if expression.both else "每天"
    if not months or (expression.both and within in text):
        return text
    return f"{months} {text}".strip()


def _days(field: Field, within: str) -> str:
    parts = [
        _special_day(item.special) if item.special else _stretch(item, _UNITS["day"], _LENGTHS["day"])
        for item in field.items
    ]
    return f"{within} {_joined(parts)}"


def _special_day(special: Special) -> str:
    if special.form == "nearest":
        return f"离 {special.value} 日最近的工作日"
    if special.form == "last-weekday":
        return f"倒数第 {special.value + 1} 天或之前的最后一个工作日" if special.value else "最后一个工作日"
    return f"倒数第 {special.value + 1} 天" if special.value else "最后一天"


def _weekdays(field: Field, within: str) -> str:
    parts: list[str] = []
    if any(item.form != "special" for item in field.items):
        parts.append(named(field, lambda number: _WEEKDAYS[weekday(number, field)], _joined, _range))
    for special in field.specials:
        which = "最后一个" if special.form == "last-named" else f"第 {special.nth} 个"
        parts.append(f"{within}{which}{_WEEKDAYS[special.value]}")
    return _joined(parts)


def _months(expression: Expression) -> str:
    if is_open(expression.month):
        return ""
    return named(expression.month, lambda number: f"{number} 月", _joined, _range)


def _years(expression: Expression) -> str:
    if is_open(expression.year):
        return ""
    return named(expression.year, lambda number: f"{number} 年", _joined, _range)
