"""As many items as a load test wants, the same ones every time.

The shops and their goods are made up; genres and tags are recorded ones, so that those are found too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.catalog.replay.shapes import Record

FIRST_NUMBER = 10_000_001
ITEMS_A_SHOP = 40

SHOPS = (
    *("みなと茶舗", "山の辺商店", "暮らしの道具 さくら堂", "北浜コーヒー焙煎所", "健康生活マルシェ"),
    *("うつわと水 青葉", "信州おくりもの便", "くすりの若松", "喫茶すずらん", "ひだまり食品館"),
)
PLACES = "北海道 山形県 長野県 静岡県 京都府 奈良県 福岡県 鹿児島県".split()
PRAISES = "【送料無料】 【ポイント5倍】 ＼レビュー特典／ 【あす楽】 お中元・お歳暮に 【お買い得】".split()
SIZES = ("お試し", "1個", "2個セット", "6個入り", "12個入り", "まとめ買い 24個")


@dataclass(frozen=True)
class Goods:
    """A kind of goods, with its recorded genre and tags."""

    name: str
    genre_id: str
    price: int
    text: str
    tag_ids: tuple[int, ...] = ()


GOODS = (
    Goods(
        "天然水 500mL ラベルレス", "201351", 98, "やわらかな口あたりの軟水です。", (1003726, 1003740, 1003741)
    ),
    Goods("炭酸水 1L プレーン", "201351", 120, "強めの炭酸で、割り材にも。", (1003727, 1003740, 1003797)),
    Goods("温泉水 2L 箱入り", "201351", 260, "地下深くから湧き出る温泉水。", (1003727, 1003740, 1003748)),
    Goods("深煎りコーヒー豆 200g", "100356", 980, "焙煎したての香りをお届けします。"),
    Goods("一番茶 煎茶 100g", "100361", 1_080, "新芽だけを摘みとりました。"),
    Goods("和紅茶 ティーバッグ", "100351", 648, "渋みが少なく、はちみつのような香り。"),
    Goods("カモミール ハーブティー", "201439", 720, "おやすみ前の一杯に。ノンカフェイン。"),
    Goods("ジャスミン茶 業務用", "200029", 890, "水出しでもおいしくいただけます。"),
    Goods("純ココア 無糖", "502131", 850, "砂糖・乳製品は使っていません。"),
    Goods("卓上ウォーターサーバー", "559934", 15_800, "工事いらず、置くだけ。　温水・冷水の切り替え付き。"),
    Goods("上腕式 血圧計", "214872", 4_980, "大きな表示で見やすい。&nbsp;日本語説明書付き。"),
    Goods("電子体温計 予測式", "214864", 1_480, "約20秒で測れます。"),
)


def items(count: int) -> Iterator[Record]:
    """So many flat records of item search, `shop-0001:10000001` and on."""
    for number in range(count):
        yield _item(number)


def ranking(genre_id: str, ranked: list[Record]) -> Record:
    """The flat answer of a ranking in which these items have the ranks 1 and on, their numbers as text."""
    spelled = ("itemPrice", "affiliateRate", "reviewAverage")
    return {
        "title": f"【楽天市場】ランキング市場 【{genre_id}】",
        "lastBuildDate": "Tue, 22 Oct 2019 00:00:00 +0900",
        "Items": [
            {
                "rank": rank,
                "carrier": 0,
                **{key: value for key, value in item.items() if key not in ("tagIds", "giftFlag")},
                **{key: str(item[key]) for key in spelled},
            }
            for rank, item in enumerate(ranked, start=1)
        ],
    }


def _item(number: int) -> Record:
    shop_number = number // ITEMS_A_SHOP + 1
    shop_code, item_number = f"shop-{shop_number:04d}", FIRST_NUMBER + number
    shop_name = f"{SHOPS[shop_number % len(SHOPS)]} {shop_number}号店"
    goods = GOODS[number % len(GOODS)]
    # Steps without a common divisor, so that neighbours differ in everything and combinations come late.
    size_at, place, praise = number * 5 % len(SIZES), PLACES[number % len(PLACES)], PRAISES[number // 7 % 6]
    reviews = number * 37 % 1_200
    url = f"https://item.rakuten.co.jp/{shop_code}/{item_number}/"
    image = f"https://thumbnail.image.rakuten.co.jp/@0_mall/{shop_code}/cabinet/{item_number}"
    counts = range(1, number % 3 + 2)
    return {
        "itemName": f"{praise} {goods.name} {SIZES[size_at]} {place}産 {shop_name}",
        "catchcopy": f"{place}からまっすぐお届け！{goods.text}" if number % 4 else "",
        "itemCode": f"{shop_code}:{item_number}",
        "itemPrice": goods.price * (size_at + 1) + number % 10 * 10,
        "itemCaption": f"商品名：{goods.name}　内容量：{SIZES[size_at]}　産地：{place} {goods.text} "
        f"保存方法：直射日光を避けて保存してください。 販売元：{shop_name} 商品番号：{item_number}",
        "itemUrl": url,
        "affiliateUrl": "",
        "shopAffiliateUrl": "",
        "imageFlag": 1,
        "smallImageUrls": [f"{image}_{at}.jpg?_ex=64x64" for at in counts],
        "mediumImageUrls": [f"{image}_{at}.jpg?_ex=128x128" for at in counts],
        "availability": 0 if number % 50 == 49 else 1,
        "taxFlag": 0,
        "postageFlag": number % 2,
        "creditCardFlag": 1,
        "shopOfTheYearFlag": int(shop_number % 9 == 0),
        "shipOverseasFlag": 0,
        "shipOverseasArea": "",
        "asurakuFlag": 0,
        "asurakuClosingTime": "",
        "asurakuArea": "",
        "affiliateRate": number % 4 + 1,
        "startTime": "",
        "endTime": "",
        "reviewCount": reviews,
        "reviewAverage": (350 + number * 7 % 150) / 100 if reviews else 0,
        "pointRate": 5 if number % 6 == 1 else 1,
        "pointRateStartTime": "2019-10-18 09:00" if number % 6 == 1 else "",
        "pointRateEndTime": "2019-10-29 09:59" if number % 6 == 1 else "",
        "giftFlag": number % 2,
        "shopName": shop_name,
        "shopCode": shop_code,
        "shopUrl": f"https://www.rakuten.co.jp/{shop_code}/",
        "genreId": goods.genre_id,
        "tagIds": list(goods.tag_ids),
    }
